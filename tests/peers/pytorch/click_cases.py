"""Models of clicks: embeddings of categories beside dense features."""

import torch
from torch import nn

from case import BATCH, Case, case, CLASSES, STEPS, tokens


def clicks(module, fields=3, rows=20, dense=5, **options):
    inputs = {"dense": torch.randn(STEPS, BATCH, dense)} if dense else {}
    inputs["ids"] = torch.randint(rows, (STEPS, BATCH, fields))
    return Case(module, inputs, torch.randint(2, (STEPS, BATCH)).float(),
                loss="sigmoid", **options)


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 4) for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4),
                                    nn.ReLU())
        self.top = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, ids):
        bottom = self.bottom(dense)
        rows = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([bottom, products[:, i, j]], dim=1))


@case
def dlrm():
    return clicks(Dlrm())


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Embedding(20, 1), nn.Embedding(20, 4)
        self.mlp = nn.Sequential(nn.Linear(17, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, ids):
        deep = self.mlp(torch.cat([dense, self.deep(ids).flatten(1)], 1))
        return deep + self.wide(ids).sum(1)


@case
def wide_and_deep():
    return clicks(WideAndDeep())


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.factors = nn.Embedding(20, 1), nn.Embedding(20, 4)
        self.mlp = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        rows = self.factors(ids)
        pairs = 0.5 * (rows.sum(1) ** 2 - (rows ** 2).sum(1)).sum(1, True)
        return (self.linear(ids).sum(1) + pairs + self.mlp(rows.flatten(1)) +
                self.bias)


@case
def deepfm():
    return clicks(DeepFm(), dense=0)


class Dcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)
        self.crosses = nn.ModuleList(nn.Linear(17, 17) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(17, 8), nn.ReLU())
        self.head = nn.Linear(25, 1)

    def forward(self, dense, ids):
        x0 = x = torch.cat([dense, self.table(ids).flatten(1)], 1)
        for cross in self.crosses:
            x = x0 * cross(x) + x
        return self.head(torch.cat([x, self.deep(x0)], 1)).squeeze(1)


@case
def dcn():
    return clicks(Dcn())


class BagOfWords(nn.Module):
    """EmbeddingBag as Embedding and sum; 0 is padding."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, padding_idx=0)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids):
        return self.head(self.table(ids).sum(1))


@case
def bag_of_words():
    return tokens(BagOfWords())


class MaskedMean(nn.Module):
    """The mean over the words that are not padding."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, CLASSES)

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1).float()
        mean = (self.table(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.head(mean)


@case
def masked_mean():
    return tokens(MaskedMean())


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(50, 8, mode="sum")
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids):
        return self.head(self.table(ids))


@case
def embedding_bag():
    return tokens(Bag())
