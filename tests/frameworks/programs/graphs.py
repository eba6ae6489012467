# SPDX-License-Identifier: Apache-2.0
# What: PyTorch Geometric: graphs of different sizes in a batch, attention, top-k pooling by scores that nobody computed.
# needs: torch-geometric
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, TopKPooling, global_mean_pool

torch.manual_seed(0)


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.pool, self.second = GCNConv(64, 128), TopKPooling(128, 0.5), GATConv(128, 64, heads=4)
        self.last = torch.nn.Linear(256, 10)

    def forward(self, graphs):
        x = self.first(graphs.x, graphs.edge_index).relu()
        x, edges, _, graph, _, _ = self.pool(x, graphs.edge_index, None, graphs.batch)
        return self.last(global_mean_pool(self.second(x, edges), graph)), len(x)


def make(nodes):
    return Data(x=torch.randn(nodes, 64), edge_index=torch.randint(0, nodes, (2, 6 * nodes)), y=torch.randint(0, 10, (1,)))


loader = DataLoader([make(int(nodes)) for nodes in torch.randint(30, 200, (192,))], batch_size=64)
model = Classifier().cuda()
optimizer = torch.optim.Adam(model.parameters())
for graphs in loader:
    kept = sum((nodes + 1) // 2 for nodes in torch.bincount(graphs.batch).tolist())
    graphs = graphs.to("cuda")
    scores, left = model(graphs)
    assert scores.shape == (64, 10) and left == kept, (scores.shape, left, kept)
    loss = torch.nn.functional.cross_entropy(scores, graphs.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("ok")
