# SPDX-License-Identifier: Apache-2.0
# What: sparse gradients of embeddings with SparseAdam and Adagrad, EmbeddingBag, sparse matrix products.
import torch

device = "cuda"
ROWS, WIDTH = 20000, 64
table = torch.nn.Embedding(ROWS, WIDTH, sparse=True).to(device)
bag = torch.nn.EmbeddingBag(ROWS, WIDTH, sparse=True, mode="sum").to(device)
head = torch.nn.Linear(WIDTH, 2).to(device)
sparse = torch.optim.SparseAdam([table.weight, bag.weight])
dense = torch.optim.Adam(head.parameters())
tokens = torch.randint(0, ROWS, (32, 20)).to(device)
for _ in range(3):
    sparse.zero_grad()
    dense.zero_grad()
    loss = head(table(tokens).mean(1) + bag(tokens)).square().mean()
    loss.backward()
    assert table.weight.grad.is_sparse and table.weight.grad._nnz() == 640
    assert bag.weight.grad.is_sparse
    merged = table.weight.grad.coalesce()
    assert merged.is_coalesced() and 1 <= merged._nnz() <= 640 and merged.values().shape[1] == WIDTH
    sparse.step()
    dense.step()
    assert loss.item() > 0
assert sparse.state[table.weight]["exp_avg"].shape == (ROWS, WIDTH)
adagrad = torch.optim.Adagrad(table.parameters())
table(tokens).sum().backward()
adagrad.step()
for mode in ("sum", "mean", "max"):
    pooled = torch.nn.EmbeddingBag(100, 8, mode=mode).to(device)
    offsets = torch.tensor([0, 3, 3, 7], device=device)
    out = pooled(torch.arange(10, device=device), offsets)
    assert out.shape == (4, 8)
    out.sum().backward()
    assert pooled.weight.grad.shape == (100, 8)

# A small sparse matrix has the values that it should have.
indices = torch.tensor([[0, 1, 1, 2], [1, 0, 0, 2]], device=device)
matrix = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0, 4.0], device=device), (3, 3))
merged = matrix.coalesce()
assert merged._nnz() == 3 and merged.indices().tolist() == [[0, 1, 2], [1, 0, 2]] and merged.values().tolist() == [1.0, 5.0, 4.0]
dense = [[0.0, 1.0, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 4.0]]
assert matrix.to_dense().tolist() == merged.to_dense().tolist() == merged.to_sparse_csr().to_dense().tolist() == dense
assert torch.sparse.mm(matrix, torch.eye(3, device=device)).tolist() == dense and torch.mv(merged.to_sparse_csr(), torch.ones(3, device=device)).tolist() == [1, 5, 4]
assert torch.sparse.softmax(merged, 1).to_dense().tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
for twice, values in ((matrix + matrix, [2, 10, 8]), (merged + merged, [2, 10, 8]), (matrix - 2 * matrix, [-1, -5, -4]), (torch.add(matrix, matrix, alpha=0.5), [1.5, 7.5, 6])):
    assert twice.coalesce().values().tolist() == values and twice.to_dense().sum().item() == sum(values), (twice, values)
large = torch.sparse_coo_tensor(torch.randint(0, 4096, (2, 50000)).to(device), torch.ones(50000, device=device), (4096, 4096))
right = torch.ones(4096, 256, device=device, requires_grad=True)
out = torch.sparse.mm(large, right)
assert out.shape == (4096, 256)
out.sum().backward()
assert right.grad.shape == right.shape
csr = large.coalesce().to_sparse_csr()
assert (csr @ right.detach()).shape == (4096, 256)
assert torch.mv(csr, torch.ones(4096, device=device)).shape == (4096,)
# A softmax over rows reads back how many rows there are: memory in proportion, whatever blocks held before.
for _ in range(3):
    torch.full((1 << 20,), 7, dtype=torch.long, device=device)
    [torch.full((64,), 1 << 40, dtype=torch.long, device=device) for _ in range(64)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    rows = large.coalesce().requires_grad_()
    soft = torch.sparse.softmax(rows, 1)
    assert soft._nnz() == rows._nnz()
    torch.sparse.sum(soft).backward()
    assert torch.cuda.max_memory_allocated() - before < 32 << 20
assert torch.sparse.sum(large.coalesce(), 0).shape == (4096,)
print("ok")
