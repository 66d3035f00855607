"""SobolevConv in a model of someone else's: a PyTorch Geometric network that keeps its own layers and training loop."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch_geometric.data import Data
from torch_geometric.nn import LayerNorm, Linear

from sobgnn import SobolevConv, knn_graph


class Network(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv = SobolevConv(features, hidden, alpha=3)  # where a GCNConv stood
        self.norm = LayerNorm(hidden)
        self.out = Linear(hidden, classes)

    def forward(self, data: Data) -> torch.Tensor:
        h = self.conv(data.x, data.edge_index, data.edge_weight)
        return self.out(F.dropout(self.norm(h).relu(), 0.3, self.training))


torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
edge_index, edge_weight = knn_graph(x, k=10).edges()
data = Data(x=x, y=torch.tensor(digits.target), edge_index=edge_index, edge_weight=edge_weight)
train = torch.randperm(len(x))[:180]

model = Network(64, 32, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(60):
    optimizer.zero_grad()
    F.cross_entropy(model(data)[train], data.y[train]).backward()
    optimizer.step()

right = (model.eval()(data).argmax(dim=1) == data.y).float().mean()
print(f"180 labels, {len(x)} digits: {right:.1%} right")
