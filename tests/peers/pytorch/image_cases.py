"""Models of images: convolutional networks, torchvision's, and U-Nets."""

import torch
from torch import nn
from torch.nn import functional
from torchvision.models import (convnext, densenet, inception, mobilenetv2,
                                mobilenetv3, regnet, resnet, shufflenetv2,
                                swin_transformer, vgg, vision_transformer)
from torchvision.models import efficientnet as efficientnet_module
from torchvision.models import squeezenet as squeezenet_module
from torchvision.models.googlenet import BasicConv2d, Inception

from case import BATCH, Case, case, CLASSES, classes, features, STEPS, values


def images(module, channels=3, size=16, **options):
    return features(module, channels, size, size, name="image", **options)


@case
def lenet():
    return images(nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, CLASSES)), channels=1)


class SmallResNet(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
            nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.inplanes = 8
        self.layers = nn.Sequential(self.stage(block, 4, 1),
                                    self.stage(block, 8, 2))
        self.head = nn.Linear(8 * block.expansion, CLASSES)

    def stage(self, block, planes, stride):
        shortcut = nn.Sequential(
            nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride,
                      bias=False), nn.BatchNorm2d(planes * block.expansion))
        first = block(self.inplanes, planes, stride, shortcut)
        self.inplanes = planes * block.expansion
        return nn.Sequential(first, block(self.inplanes, planes))

    def forward(self, image):
        x = self.layers(self.stem(image))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@case
def resnet18():
    return images(SmallResNet(resnet.BasicBlock), rate=0.005)


@case
def resnet50():
    return images(SmallResNet(resnet.Bottleneck), rate=0.005)


class Vgg(nn.Module):
    def __init__(self, batch_norm):
        super().__init__()
        self.features = vgg.make_layers([4, "M", 8, 8, "M"], batch_norm)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True),
                                        nn.Dropout(0.0), nn.Linear(16, CLASSES))

    def forward(self, image):
        x = self.avgpool(self.features(image))
        return self.classifier(torch.flatten(x, 1))


@case
def vgg_plain():
    return images(Vgg(False))


@case
def vgg_bn():
    return images(Vgg(True), rate=0.01)


@case
def mobilenet_v2():
    return images(mobilenetv2.MobileNetV2(
        CLASSES, width_mult=0.25, dropout=0, inverted_residual_setting=[
            [1, 16, 1, 1], [6, 24, 2, 2]]), size=32, rate=0.005)


@case
def mobilenet_v3():
    setting = [
        mobilenetv3.InvertedResidualConfig(8, 3, 8, 8, True, "RE", 2, 1, 1),
        mobilenetv3.InvertedResidualConfig(8, 3, 16, 16, True, "HS", 2, 1, 1),
        mobilenetv3.InvertedResidualConfig(16, 5, 32, 16, True, "HS", 1, 1, 1)]
    return images(mobilenetv3.MobileNetV3(setting, 32, CLASSES, dropout=0),
                  size=32, rate=0.005)


@case
def shufflenet():
    return images(shufflenetv2.ShuffleNetV2([2, 2, 2], [8, 8, 16, 32, 32],
                                            CLASSES), size=32, rate=0.0005)


@case
def squeezenet():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(True), nn.MaxPool2d(3, 2,
                                                           ceil_mode=True),
        squeezenet_module.Fire(8, 4, 8, 8), squeezenet_module.Fire(16, 4, 8, 8),
        nn.Dropout(0.0), nn.Conv2d(16, CLASSES, 1), nn.ReLU(True),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()), size=32)


@case
def densenet_small():
    return images(densenet.DenseNet(4, (2, 2), 8, bn_size=2,
                                    num_classes=CLASSES), size=32, rate=0.005)


@case
def efficientnet():
    setting = [
        efficientnet_module.MBConvConfig(1, 3, 1, 8, 8, 1),
        efficientnet_module.MBConvConfig(4, 3, 2, 8, 8, 2)]
    return images(efficientnet_module.EfficientNet(
        setting, 0.0, stochastic_depth_prob=0.0, num_classes=CLASSES,
        last_channel=32), size=32, rate=0.005)


@case
def efficientnet_v2():
    setting = [
        efficientnet_module.FusedMBConvConfig(2, 3, 2, 8, 8, 1),
        efficientnet_module.MBConvConfig(4, 3, 2, 8, 8, 1)]
    return images(efficientnet_module.EfficientNet(
        setting, 0.0, stochastic_depth_prob=0.0, num_classes=CLASSES,
        last_channel=32), size=32, rate=0.005)


@case
def regnet_y():
    parameters = regnet.BlockParams.from_init_params(
        depth=3, w_0=8, w_a=8.0, w_m=2.5, group_width=4, se_ratio=0.25)
    return images(regnet.RegNet(parameters, CLASSES, stem_width=8), size=32,
                  rate=0.005)


@case
def convnext_small():
    setting = [convnext.CNBlockConfig(8, 16, 1),
               convnext.CNBlockConfig(16, None, 1)]
    return images(convnext.ConvNeXt(setting, 0.0, 1.0, CLASSES), size=32)


@case
def swin():
    return images(swin_transformer.SwinTransformer(
        [2, 2], 8, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0,
        num_classes=CLASSES))


@case
def swin_v2():
    return images(swin_transformer.SwinTransformer(
        [2, 2], 8, [1, 1], [2, 2], [2, 2], stochastic_depth_prob=0.0,
        num_classes=CLASSES, block=swin_transformer.SwinTransformerBlockV2,
        downsample_layer=swin_transformer.PatchMergingV2))


@case
def vit():
    return images(vision_transformer.VisionTransformer(
        16, 8, 2, 2, 16, 32, num_classes=CLASSES))


class SmallGoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = BasicConv2d(3, 8, kernel_size=3, stride=2)
        self.a = Inception(8, 4, 4, 8, 4, 4, 4)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.b = Inception(20, 4, 4, 8, 4, 4, 4)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, image):
        x = self.b(self.pool(self.a(self.conv(image))))
        x = functional.adaptive_avg_pool2d(x, (1, 1))
        return self.head(torch.flatten(x, 1))


@case
def googlenet_small():
    return images(SmallGoogLeNet(), rate=0.005)


class SmallInception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = inception.BasicConv2d(3, 8, kernel_size=3, stride=2)
        self.a = inception.InceptionA(8, 8)
        self.b = inception.InceptionB(64 + 64 + 96 + 8)
        self.head = nn.Linear(384 + 96 + 232, CLASSES)

    def forward(self, image):
        x = self.b(self.a(self.stem(image)))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@case
def inception_v3():
    return images(SmallInception(), rate=0.002)


@case
def alexnet_lrn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(True),
        nn.LocalResponseNorm(5, alpha=1e-2, k=2), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Linear(72, CLASSES)))


@case
def grouped_conv():
    return images(nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(), nn.Flatten(), nn.Linear(1152, CLASSES)), channels=4)


@case
def dilated_conv():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same", dilation=2), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, CLASSES)))


@case
def groupnorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.GroupNorm(4, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, CLASSES)))


@case
def instancenorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
        nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(288, CLASSES)))


@case
def batchnorm_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8, momentum=0.3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, CLASSES)), rate=0.01)


@case
def conv1d():
    return features(nn.Sequential(
        nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(8, CLASSES)), 3, 16)


@case
def conv3d():
    return features(nn.Sequential(
        nn.Conv3d(1, 4, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(),
        nn.Linear(108, CLASSES)), 1, 8, 8, 8)


@case
def adaptive_pool_cnn():
    return images(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((2, 2)),
        nn.Flatten(), nn.Linear(32, CLASSES)))


class UNet(nn.Module):
    """Its classes are of pixels, and last."""

    def __init__(self, upsample):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2),
                                    nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(),
                                    upsample)
        self.up = nn.Conv2d(12, CLASSES, 3, padding=1)

    def forward(self, image):
        x = self.down(image)
        x = torch.cat([x, self.middle(x)], dim=1)
        return self.up(x).permute(0, 2, 3, 1)


def pixels(module):
    return Case(module, {"image": torch.randn(STEPS, BATCH, 3, 8, 8)},
                classes(8, 8))


@case
def unet_nearest():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="nearest")))


@case
def unet_bilinear():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="bilinear")))


@case
def unet_bilinear_corners():
    return pixels(UNet(nn.Upsample(scale_factor=2, mode="bilinear",
                                   align_corners=True)))


@case
def unet_transposed():
    return pixels(UNet(nn.ConvTranspose2d(8, 8, 2, stride=2)))


class SizedUpsample(nn.Module):
    def forward(self, x):
        return functional.interpolate(x, size=(8, 8), mode="nearest")


@case
def unet_sized():
    return pixels(UNet(SizedUpsample()))


@case
def conv_autoencoder():
    return values(nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1),
        nn.ReLU(), nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
        nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1),
        nn.Sigmoid(), nn.Flatten()), 1, 8, 8, outputs=64)


@case
def pixel_shuffle():
    return values(nn.Sequential(
        nn.Conv2d(1, 4, 3, 1, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1),
        nn.PixelShuffle(2), nn.Flatten()), 1, 4, 4, outputs=64)
