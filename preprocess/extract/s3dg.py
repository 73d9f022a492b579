"""S3D-G, the video network of MIL-NCE on HowTo100M, with the names and shapes of the released checkpoint.

Architecture: Xie et al., "Rethinking Spatiotemporal Feature Learning" (arXiv 1712.04851); the joint
embedding on top: Miech et al., "End-to-End Learning of Visual Representations from Uncurated Instructional Videos"
(arXiv 1912.06430). The checkpoint takes its input folded by two along time, height and width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from preprocess.extract.sections import S3DG_FOLD

Triple = tuple[int, int, int]


class S3DGOutput(NamedTuple):
    """video_embedding_BD: (B, 512) joint space; mixed_5c_BD: (B, 1024) mean of the last block over time and space."""

    video_embedding_BD: torch.Tensor
    mixed_5c_BD: torch.Tensor


class _Conv(nn.Module):
    """One convolution, batch norm, ReLU; `separable` splits it into space (1, k, k) and then time (k, 1, 1)."""

    def __init__(
        self, into: int, out: int, kernel: Triple, padding: Triple = (0, 0, 0), *, separable: bool = False
    ) -> None:
        super().__init__()
        time, height, width = kernel
        self.separable = separable
        first = (1, height, width) if separable else kernel
        around = (0, *padding[1:]) if separable else padding
        self.conv1 = nn.Conv3d(into, out, first, padding=around, bias=False)
        self.bn1 = nn.BatchNorm3d(out)
        if separable:
            self.conv2 = nn.Conv3d(out, out, (time, 1, 1), padding=(padding[0], 0, 0), bias=False)
            self.bn2 = nn.BatchNorm3d(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x))) if self.separable else x


class _Gating(nn.Module):
    """Self-gating: every channel times a sigmoid of a linear map of all channels' global means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights_BC = torch.sigmoid(self.fc(x.mean(dim=(2, 3, 4))))
        return weights_BC[:, :, None, None, None] * x


class _SamePool(nn.Module):
    """Max-pool with TensorFlow's SAME padding for this kernel and stride: an odd one out goes after; sizes round up.

    Padding with zeros is padding with the smallest value: what comes in has been through a ReLU.
    """

    def __init__(self, kernel: Triple, stride: Triple) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d(kernel, stride, ceil_mode=True)
        self.padding: list[int] = []
        for size, step in zip(reversed(kernel), reversed(stride), strict=True):  # F.pad counts from the last axis
            total = max(size - step, 0)
            self.padding += [total // 2, total - total // 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.pool(F.pad(x, self.padding))
        return pooled


class _Inception(nn.Module):
    """Four branches, each gated, side by side."""

    def __init__(self, into: int, b0: int, b1: tuple[int, int], b2: tuple[int, int], b3: int) -> None:
        super().__init__()
        one, three, pad = (1, 1, 1), (3, 3, 3), (1, 1, 1)
        self.conv_b0 = _Conv(into, b0, one)
        self.conv_b1_a = _Conv(into, b1[0], one)
        self.conv_b1_b = _Conv(b1[0], b1[1], three, pad, separable=True)
        self.conv_b2_a = _Conv(into, b2[0], one)
        self.conv_b2_b = _Conv(b2[0], b2[1], three, pad, separable=True)
        self.maxpool_b3 = nn.MaxPool3d(three, stride=1, padding=1)
        self.conv_b3_b = _Conv(into, b3, one)
        self.gating_b0, self.gating_b1 = _Gating(b0), _Gating(b1[1])
        self.gating_b2, self.gating_b3 = _Gating(b2[1]), _Gating(b3)
        self.channels = b0 + b1[1] + b2[1] + b3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branches = (
            self.gating_b0(self.conv_b0(x)),
            self.gating_b1(self.conv_b1_b(self.conv_b1_a(x))),
            self.gating_b2(self.conv_b2_b(self.conv_b2_a(x))),
            self.gating_b3(self.conv_b3_b(self.maxpool_b3(x))),
        )
        return torch.cat(branches, dim=1)


class S3DG(nn.Module):
    """Clips float (B, 3, T, H, W) in [0, 1], T, H and W even, to `S3DGOutput`."""

    def __init__(self, embedding_dim: int = 512) -> None:
        super().__init__()
        self.conv1 = _Conv(3 * S3DG_FOLD**3, 64, (2, 4, 4), (1, 2, 2))
        self.maxpool_2a = _SamePool((1, 3, 3), (1, 2, 2))
        self.conv_2b = _Conv(64, 64, (1, 1, 1))
        self.conv_2c = _Conv(64, 192, (3, 3, 3), (1, 1, 1), separable=True)
        self.gating = _Gating(192)
        self.maxpool_3a = _SamePool((1, 3, 3), (1, 2, 2))
        self.mixed_3b = _Inception(192, 64, (96, 128), (16, 32), 32)
        self.mixed_3c = _Inception(256, 128, (128, 192), (32, 96), 64)
        self.maxpool_4a = _SamePool((3, 3, 3), (2, 2, 2))
        self.mixed_4b = _Inception(480, 192, (96, 208), (16, 48), 64)
        self.mixed_4c = _Inception(512, 160, (112, 224), (24, 64), 64)
        self.mixed_4d = _Inception(512, 128, (128, 256), (24, 64), 64)
        self.mixed_4e = _Inception(512, 112, (144, 288), (32, 64), 64)
        self.mixed_4f = _Inception(528, 256, (160, 320), (32, 128), 128)
        self.maxpool_5a = _SamePool((2, 2, 2), (2, 2, 2))
        self.mixed_5b = _Inception(832, 256, (160, 320), (32, 128), 128)
        self.mixed_5c = _Inception(832, 384, (192, 384), (48, 128), 128)
        self.fc = nn.Linear(self.mixed_5c.channels, embedding_dim)

    def forward(self, clips: torch.Tensor) -> S3DGOutput:
        # conv1 pads both ends though its kernel is even; its first slice of every axis is one too many.
        x = self.conv1(space_to_depth(clips))[:, :, 1:, 1:, 1:]
        x = self.conv_2c(self.conv_2b(self.maxpool_2a(x)))
        x = self.mixed_3c(self.mixed_3b(self.maxpool_3a(self.gating(x))))
        x = self.maxpool_4a(x)
        for block in (self.mixed_4b, self.mixed_4c, self.mixed_4d, self.mixed_4e, self.mixed_4f):
            x = block(x)
        x = self.mixed_5c(self.mixed_5b(self.maxpool_5a(x)))
        mixed_5c_BD = x.mean(dim=(2, 3, 4))
        return S3DGOutput(self.fc(mixed_5c_BD), mixed_5c_BD)


def space_to_depth(clips: torch.Tensor) -> torch.Tensor:
    """(B, C, T, H, W) to (B, 8 C, T/2, H/2, W/2): blocks of two, folded into channels in the order (t, h, w, c).

    Raises ValueError for odd sizes, which cannot be folded.
    """
    batch, channels, *sizes = clips.shape
    if any(size % S3DG_FOLD for size in sizes):
        raise ValueError(
            f"clips of {sizes[0]} frames of {sizes[1]} x {sizes[2]} cannot be folded by two; all must be even"
        )
    time, height, width = (size // S3DG_FOLD for size in sizes)
    blocks = clips.reshape(batch, channels, time, S3DG_FOLD, height, S3DG_FOLD, width, S3DG_FOLD)
    folded = blocks.permute(0, 3, 5, 7, 1, 2, 4, 6)
    return folded.reshape(batch, channels * S3DG_FOLD**3, time, height, width)
