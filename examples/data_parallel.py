"""Several processes, a block of nodes each, train one network: torchrun --nproc-per-node=2 examples/data_parallel.py"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from torch_geometric.utils import k_hop_subgraph

from sobgnn import SSobGNN, knn_graph

with contextlib.ExitStack() as stack:
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")  # on GPUs "nccl", and the tensors on a GPU of each process's own
        stack.callback(dist.destroy_process_group)
        stack.callback(dist.barrier)  # first: gloo ends a process whose peer has already left
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(0)
    # Blocks of nodes have few neighbors outside if the order keeps neighbors close; here blob follows blob.
    points, labels = make_blobs(4000, 6, centers=10, cluster_std=2.5, shuffle=False, random_state=0)
    x, y = torch.tensor(points / points.std(), dtype=torch.float32), torch.tensor(labels)
    edge_index, edge_weight = knn_graph(x, k=10).edges()
    labeled = torch.rand(len(x)) < 0.05

    # This process's nodes and all nodes within two edges of them, which two layers read; normalized by rows, the
    # layers then give them the logits of the whole graph. Where pyg-lib is installed, PyG's NeighborLoader draws
    # batches of them instead.
    own = torch.arange(len(x)).tensor_split(size)[rank]
    nodes, inner_edges, at, kept = k_hop_subgraph(own, 2, edge_index, relabel_nodes=True, num_nodes=len(x))
    part = x[nodes], inner_edges, edge_weight[kept]
    train, held = labeled[own], ~labeled[own]

    model: torch.nn.Module = SSobGNN(6, 32, 10, normalize="row")
    model = torch.nn.parallel.DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        # DistributedDataParallel averages over processes, which have different numbers of labels.
        loss = F.cross_entropy(model(*part)[at[train]], y[own][train], reduction="sum") * size / labeled.sum()
        loss.backward()
        optimizer.step()

    counts = torch.stack([(model.eval()(*part)[at].argmax(dim=1) == y[own])[held].sum(), held.sum()])
    if size > 1:
        dist.all_reduce(counts)
    if rank == 0:
        print(f"Process 1 of {size}, {len(nodes)} of {len(x)} nodes here: {counts[0] / counts[1]:.1%} right")
