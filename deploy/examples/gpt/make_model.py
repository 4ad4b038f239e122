#!/usr/bin/env python3
"""Writes a GPT as ONNX text.

  make_model.py [--layers 4] [--width 128] [--heads 4] [--length 64]
                [--vocabulary 256] [--opset 20] > model.onnxtxt

From opset 23 on attention is one operator.

Radford et al. 2019, as nanoGPT has it: normalisation before each part, GELU,
learned positions, no biases in products, the embedding also makes the logits.
All weights are declared without values; the job's rules fill them.
"""

import argparse


def attention(p, width, heads, opset):
    """From q, k and v, side by side per head, to the heads' mix."""
    if opset >= 23:
        return f"""
    {p}_joined = Attention <is_causal = 1, q_num_heads = {heads}, kv_num_heads = {heads}> ({p}_q, {p}_k, {p}_v)"""
    return f"""
    {p}_qh = Reshape ({p}_q, to_heads)
    {p}_kh = Reshape ({p}_k, to_heads)
    {p}_vh = Reshape ({p}_v, to_heads)
    {p}_qt = Transpose <perm = [0, 2, 1, 3]> ({p}_qh)
    {p}_kt = Transpose <perm = [0, 2, 3, 1]> ({p}_kh)
    {p}_vt = Transpose <perm = [0, 2, 1, 3]> ({p}_vh)
    {p}_qs = Mul ({p}_qt, scale)
    {p}_qk = MatMul ({p}_qs, {p}_kt)
    {p}_masked = Add ({p}_qk, mask)
    {p}_weights = Softmax <axis = -1> ({p}_masked)
    {p}_mix = MatMul ({p}_weights, {p}_vt)
    {p}_mixt = Transpose <perm = [0, 2, 1, 3]> ({p}_mix)
    {p}_joined = Reshape ({p}_mixt, to_width)"""


def block(i, width, heads, opset):
    p = f"h{i}"
    return f"""
    {p}_n1 = LayerNormalization (x{i}, {p}_norm1_scale, {p}_norm1_bias)
    {p}_qkv = MatMul ({p}_n1, {p}_w_qkv)
    {p}_q, {p}_k, {p}_v = Split <axis = 2{", num_outputs = 3" if opset >= 18 else ""}> ({p}_qkv){attention(p, width, heads, opset)}
    {p}_attention = MatMul ({p}_joined, {p}_w_out)
    {p}_a = Add (x{i}, {p}_attention)
    {p}_n2 = LayerNormalization ({p}_a, {p}_norm2_scale, {p}_norm2_bias)
    {p}_up = MatMul ({p}_n2, {p}_w_up)
    {p}_act = Gelu ({p}_up)
    {p}_down = MatMul ({p}_act, {p}_w_down)
    x{i + 1} = Add ({p}_a, {p}_down)"""


MASK = """
    # A position sees itself and what came before.
    scale = Constant <value_float = {scale:.9g}> ()
    never = Constant <value_float = -1000000000.0> ()
    nevers = Expand (never, square)
    mask = Trilu <upper = 1> (nevers, one)"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--opset", type=int, default=20, choices=range(20, 26))
    a = parser.parse_args()
    if a.width % a.heads != 0:
        parser.error("width must be a multiple of heads")
    w, t, v = a.width, a.length, a.vocabulary
    inputs = [f"int64[N,{t}] tokens", f"float[{v},{w}] w_tokens",
              f"float[{t},{w}] w_positions"]
    for i in range(a.layers):
        inputs += [f"float[{w}] h{i}_norm{n}_{what}"
                   for n in (1, 2) for what in ("scale", "bias")]
        inputs += [f"float[{w},{3 * w}] h{i}_w_qkv", f"float[{w},{w}] h{i}_w_out",
                   f"float[{w},{4 * w}] h{i}_w_up", f"float[{4 * w},{w}] h{i}_w_down"]
    inputs += [f"float[{w}] norm_scale", f"float[{w}] norm_bias"]
    blocks = "\n".join(block(i, w, a.heads, a.opset) for i in range(a.layers))
    listed = ",\n   ".join(inputs)
    shapes = f"""
  <int64[4] to_heads = {{0, {t}, {a.heads}, {w // a.heads}}}, int64[3] to_width = {{0, {t}, {w}}},
   int64[2] square = {{{t}, {t}}}, int64 one = {{1}}>"""
    mask = MASK.format(scale=(w // a.heads) ** -0.5)
    if a.opset >= 23:
        shapes = mask = ""
    print(f"""# Written by make_model.py: {a.layers} layers, width {w}, {a.heads} heads, windows of {t} tokens.
<ir_version: 9, opset_import: ["" : {a.opset}]>
gpt
  ({listed})
  => (float[N,{t},{v}] logits){shapes}
  {{{mask}
    embedded = Gather <axis = 0> (w_tokens, tokens)
    x0 = Add (embedded, w_positions)
{blocks}

    normed = LayerNormalization (x{a.layers}, norm_scale, norm_bias)
    w_logits = Transpose <perm = [1, 0]> (w_tokens)
    logits = MatMul (normed, w_logits)
  }}""")


if __name__ == "__main__":
    main()
