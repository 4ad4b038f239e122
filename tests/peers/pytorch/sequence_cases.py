"""Models of sequences: recurrent networks, encoders and decoders."""

import math

import torch
from torch import nn
from torch.nn import functional

from case import BATCH, Case, case, CLASSES, features, STEPS, tokens


class Reader(nn.Module):
    """Embeds tokens, reads them, and classifies by the last state."""

    def __init__(self, network):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.network = network
        width = 16 if network.bidirectional else 8
        self.head = nn.Linear(width, CLASSES)

    def forward(self, input_ids):
        states, _ = self.network(self.embedding(input_ids))
        return self.head(states[:, -1])


@case
def lstm():
    return tokens(Reader(nn.LSTM(8, 8, batch_first=True)))


@case
def lstm_2_bidirectional():
    return tokens(Reader(nn.LSTM(8, 8, 2, batch_first=True,
                                 bidirectional=True)))


@case
def gru():
    return tokens(Reader(nn.GRU(8, 8, batch_first=True)))


@case
def gru_2_bidirectional():
    return tokens(Reader(nn.GRU(8, 8, 2, batch_first=True,
                                bidirectional=True)))


@case
def rnn():
    return tokens(Reader(nn.RNN(8, 8, batch_first=True)))


@case
def rnn_2_relu():
    return tokens(Reader(nn.RNN(8, 8, 2, nonlinearity="relu",
                                batch_first=True)))


class LastHidden(nn.Module):
    """By the hidden state, which nn.LSTM gives beside the outputs."""

    def __init__(self):
        super().__init__()
        self.network = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        _, (hidden, _) = self.network(x)
        return self.head(hidden[-1])


@case
def lstm_hidden():
    return features(LastHidden(), 10, 6)


class Encoder(nn.Module):
    """nn.TransformerEncoder with a padding mask from the ids."""

    def __init__(self, masked, norm_first=False):
        super().__init__()
        self.masked = masked
        self.embedding = nn.Embedding(50, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(8, 16))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True,
                                       norm_first=norm_first), 2,
            enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids):
        x = self.embedding(input_ids) + self.positions
        mask = input_ids == 0 if self.masked else None
        return self.head(self.encoder(x, src_key_padding_mask=mask).mean(1))


def padded(this):
    """The last words of each sample are padding."""
    ids = this.inputs["input_ids"]
    ends = torch.randint(3, ids.shape[-1], (*ids.shape[:2], 1))
    ids[torch.arange(ids.shape[-1]) >= ends] = 0
    return this


@case
def transformer_encoder():
    return tokens(Encoder(masked=False))


@case
def transformer_encoder_prenorm():
    return tokens(Encoder(masked=False, norm_first=True))


@case
def transformer_encoder_padding():
    return padded(tokens(Encoder(masked=True)))


class SeqToSeq(nn.Module):
    """nn.Transformer: decoder with cross attention and a causal mask."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.network = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0,
                                      batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.network(self.embedding(source), self.embedding(target),
                              tgt_mask=mask, tgt_is_causal=True)
        return self.head(states)


@case
def seq_to_seq_transformer():
    source, target = torch.randint(50, (2, STEPS, BATCH, 6))
    return Case(SeqToSeq(), {"source": source, "target": target},
                torch.randint(50, (STEPS, BATCH, 6)))


class Gpt(nn.Module):
    """A decoder of its own; `attend` is how its attention is written."""

    def __init__(self, attend, tied=True):
        super().__init__()
        self.attend = attend
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(16), "qkv": nn.Linear(16, 48),
            "out": nn.Linear(16, 16), "norm2": nn.LayerNorm(16),
            "mlp": nn.Sequential(nn.Linear(16, 32), nn.GELU(),
                                 nn.Linear(32, 16))}) for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, input_ids):
        batch, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device)
        x = self.tokens(input_ids) + self.places(places)
        for block in self.blocks:
            qkv = block["qkv"](block["norm1"](x)).chunk(3, dim=-1)
            q, k, v = (part.view(batch, length, 2, 8).transpose(1, 2)
                       for part in qkv)
            y = self.attend(q, k, v).transpose(1, 2).reshape(batch, length, 16)
            x = x + block["out"](y)
            x = x + block["mlp"](block["norm2"](x))
        return self.head(self.norm(x))


def attend_triu(q, k, v):
    length = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    after = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    scores = scores.masked_fill(after, float("-inf"))
    return torch.softmax(scores, -1) @ v


def attend_sdpa(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@case
def gpt_triu():
    return tokens(Gpt(attend_triu), per_token=True)


@case
def gpt_sdpa():
    return tokens(Gpt(attend_sdpa), per_token=True)


@case
def gpt_untied():
    return tokens(Gpt(attend_sdpa, tied=False), per_token=True)
