"""Mini-batches of a large graph: NeighborLoader's subgraphs are directed, so the orders are normalized by rows."""

import importlib.util

import torch
import torch.nn.functional as F
from sklearn.datasets import make_blobs
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, RandomNodeLoader

from sobgnn import SSobGNN, knn_graph

torch.manual_seed(0)
points, labels = make_blobs(5000, 20, centers=10, cluster_std=4.0, random_state=0)
x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)
edge_index, edge_weight = knn_graph(x, k=10).edges()
data = Data(x=x / x.std(), y=y, edge_index=edge_index, edge_weight=edge_weight)
data.train = torch.rand(len(x)) < 0.02

if importlib.util.find_spec("pyg_lib") or importlib.util.find_spec("torch_sparse"):
    loader = NeighborLoader(data, [10, 10], batch_size=100, input_nodes=data.train, shuffle=True)
else:  # NeighborLoader needs one of them; parts of the graph do not
    loader = RandomNodeLoader(data, num_parts=4, shuffle=True)

model = SSobGNN(20, 32, 10, normalize="row")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(15):
    for batch in loader:
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index, batch.edge_weight)
        F.cross_entropy(logits[batch.train], batch.y[batch.train]).backward()
        optimizer.step()

right = (model.eval()(data.x, edge_index, edge_weight).argmax(dim=1) == y).float()
print(f"{type(loader).__name__}, {int(data.train.sum())} labels: {right[~data.train].mean():.1%} right of the others")
