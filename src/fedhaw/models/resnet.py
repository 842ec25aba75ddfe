"""Convolutional networks for small images.

`resnet18` is the residual network of He et al. (2016), "Deep Residual Learning for Image
Recognition", as it is used on 32 x 32 images: a 3 x 3 stem of stride 1 and no max-pool, so that the
four stages work at 32, 16, 8 and 4 pixels.
"""

from torch import Tensor, nn
from torch.nn.functional import relu

from fedhaw.listing import listed
from fedhaw.models.layout import UnsupportedModule


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, H / stride, W / stride)."""
        y = relu(self.norm1(self.conv1(x)))
        return relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int, width: int = 64, in_channels: int = 3) -> nn.Sequential:
    """ResNet-18 for 32 x 32 images; 11,173,962 parameters with 10 classes and width 64.

    Args:
        classes: how many logits come out.
        width: channels of the stem and the first stage; each later stage doubles them.
        in_channels: 3 for colour images, 1 for grey.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    channels = width
    for stage in range(4):
        outputs = width * 2**stage
        layers.append(ResidualBlock(channels, outputs, stride=1 if stage == 0 else 2))
        layers.append(ResidualBlock(outputs, outputs, stride=1))
        channels = outputs
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


def cnn(input_shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """Two 5 x 5 convolutions with max-pool and two dense layers: the usual small federated CNN.

    Args:
        input_shape: channels, height, width; both sides at least 4.
        classes: how many logits come out.
    """
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


@listed(__name__, "cnn")
def _cnn(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    return cnn(_image_shape("cnn", input_shape), classes)


@listed(__name__, "resnet18", "such as resnet18-16")
def _resnet18(input_shape: tuple[int, ...], classes: int, width: int = 64) -> nn.Sequential:
    return resnet18(classes, width, _image_shape("resnet18", input_shape)[0])


def _image_shape(name: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UnsupportedModule(
            f"{name} needs images of at least 4 x 4 pixels, (channels, height, width); these "
            f"samples have shape {shape}: choose an MLP."
        )
    return shape[0], shape[1], shape[2]
