"""The layer as one of PyG's modules."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import MessagePassing, to_hetero_with_bases

from sobgnn import SobolevConv, SSobGNN
from sobgnn.nn.message_passing import MessagePassingSobolevConv

HOOKS = [name for name in dir(MessagePassing) if name.startswith("register_") and name not in dir(torch.nn.Module)]


@pytest.mark.parametrize("name", ["propagate", "edge_updater", *HOOKS])
def test_what_needs_messages_is_refused_with_the_reason(name):
    with pytest.raises(NotImplementedError, match=r"forms no messages, so it has no propagate.*to_hetero"):
        getattr(SobolevConv(3, 4), name)(lambda *_: None)


def test_bases_of_messages_are_refused_with_the_reason():
    kinds = (["a"], [("a", "to", "a"), ("a", "from", "a")])
    with pytest.raises(NotImplementedError, match="forms no messages"):
        to_hetero_with_bases(SSobGNN(3, 4, 2, normalize="row"), kinds, num_bases=3)


def test_a_layer_of_ones_own_may_be_one_of_pygs():
    class Mine(MessagePassingSobolevConv):
        pass

    assert isinstance(Mine(3, 4), MessagePassing)
