"""Classes of whole graphs: batches of a DataLoader, a readout over the nodes of each, GCNConv and SobolevConv."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from sobgnn import SobolevConv, knn_graph


def make_graph(label: int) -> Data:
    # 40 points in the plane, near a line (0) or in a cloud (1), and their neighbors.
    points = torch.randn(40, 2)
    points[:, 1] *= 1.0 if label else 0.3
    edge_index, edge_weight = knn_graph(points, k=5).edges()
    return Data(x=points.abs(), edge_index=edge_index, edge_weight=edge_weight, y=torch.tensor([label]))


class Network(torch.nn.Module):
    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv, self.out = conv, torch.nn.Linear(16, 2)

    def forward(self, b: Data) -> torch.Tensor:
        return self.out(global_mean_pool(self.conv(b.x, b.edge_index, b.edge_weight).relu(), b.batch))


torch.manual_seed(0)
graphs = [make_graph(i % 2) for i in range(150)]
for name, model in {"GCNConv": Network(GCNConv(2, 16)), "SobolevConv": Network(SobolevConv(2, 16))}.items():
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(15):
        for batch in DataLoader(graphs[:100], batch_size=20, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
    test = next(iter(DataLoader(graphs[100:], batch_size=50)))
    print(f"{name}: {(model(test).argmax(dim=1) == test.y).float().mean():.1%} right of 50")
