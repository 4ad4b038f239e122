#!/usr/bin/env python3
"""Writes a ResNet-18 for small images as ONNX text.

  make_model.py [--side 28] [--channels 1] [--width 16] [--classes 10]
                > model.onnxtxt

He et al., CVPR 2016, with the stem of its networks for CIFAR. All weights are
declared without values; the job's rules fill them. The same as a binary with
values: synctl model resnet18 --set stem=cifar --set width=16 ...
"""

import argparse


class Writer:
    def __init__(self, channels):
        self.inputs = []
        self.nodes = []
        self.depth = channels  # of what comes next

    def node(self, line):
        self.nodes.append(line)

    def normalised(self, name, x, outputs, kernel, stride):
        """A convolution and a batch normalisation; the latter's name."""
        p = kernel // 2
        self.inputs.append(
            f"float[{outputs},{self.depth},{kernel},{kernel}] {name}_w")
        self.inputs.append(", ".join(
            f"float[{outputs}] {name}_{what}"
            for what in ("scale", "bias", "mean", "variance")))
        self.depth = outputs
        self.node(f"{name}_c = Conv <strides = [{stride}, {stride}], "
                  f"pads = [{p}, {p}, {p}, {p}]> ({x}, {name}_w)")
        self.node(f"{name} = BatchNormalization ({name}_c, {name}_scale, "
                  f"{name}_bias, {name}_mean, {name}_variance)")
        return name

    def block(self, name, x, width, stride):
        depth = self.depth
        self.normalised(f"{name}a", x, width, 3, stride)
        self.node(f"{name}r = Relu ({name}a)")
        self.normalised(f"{name}b", f"{name}r", width, 3, 1)
        shortcut = x
        if stride != 1 or depth != width:
            self.depth = depth
            shortcut = self.normalised(f"{name}s", x, width, 1, stride)
        self.node(f"{name}y = Add ({name}b, {shortcut})")
        self.node(f"{name} = Relu ({name}y)")
        return name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=28)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--classes", type=int, default=10)
    a = parser.parse_args()
    writer = Writer(a.channels)
    writer.normalised("stem", "image", a.width, 3, 1)
    writer.node("x = Relu (stem)")
    x = "x"
    for stage in range(4):
        for i in range(2):
            stride = 2 if stage > 0 and i == 0 else 1
            x = writer.block(f"l{stage + 1}{'pq'[i]}", x, a.width << stage,
                             stride)
    features = a.width << 3
    writer.inputs.append(
        f"float[{features},{a.classes}] fc_w, float[{a.classes}] fc_bias")
    writer.node(f"pooled = GlobalAveragePool ({x})")
    writer.node("features = Flatten (pooled)")
    writer.node("logits = Gemm (features, fc_w, fc_bias)")
    inputs = ",\n   ".join(writer.inputs)
    nodes = "\n    ".join(writer.nodes)
    print(f"""# Written by make_model.py: ResNet-18 for {a.side}x{a.side} images, width {a.width}.
<ir_version: 8, opset_import: ["" : 17]>
resnet18
  (float[N,{a.channels},{a.side},{a.side}] image,
   {inputs})
  => (float[N,{a.classes}] logits)
  {{
    {nodes}
  }}""")


if __name__ == "__main__":
    main()
