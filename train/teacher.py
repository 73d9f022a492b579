"""A teacher to distil from: the towers of a checkpoint, over the same stored rows and tokens."""

from __future__ import annotations

import torch

from shared.errors import RequestError
from shared.fingerprint import hash_file
from train.checkpoint import load_checkpoint, resolve_checkpoint
from train.checkpoint_content import content_fits
from train.data import WindowData
from train.distributed import World, gather_plain
from train.evaluate import check_same_inputs, config_of
from train.losses import AnyLossConfig, DistillConfig, Teacher
from train.model import TokenSpec, TwoTower, build_model
from train.seen import input_dims


class TeacherTowers:
    """fingerprint: xxh3-128 of the checkpoint file."""

    def __init__(self, model: TwoTower, fingerprint: str, world: World) -> None:
        self._towers, self.fingerprint, self._world = model.requires_grad_(False).eval(), fingerprint, world

    @property
    def bytes(self) -> int:
        """Of its weights and buffers."""
        return sum(x.numel() * x.element_size() for x in (*self._towers.parameters(), *self._towers.buffers()))

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor | None) -> Teacher:
        """Embeddings of this rank's videos and of everybody's texts; `inputs` as of a model, without dropout."""
        said = self._towers(*inputs)
        return Teacher(said.video_BD, gather_plain(said.text_BKD, self._world), said.temperature)


def open_teacher(config: AnyLossConfig, data: WindowData, tokens: TokenSpec, world: World) -> TeacherTowers | None:
    """The teacher that a loss names, on the world's device; None for a loss without.

    data: what is trained on. tokens: of all batches, whose captions may be longer than those of `data`. Raises
    RequestError for a checkpoint that is not there or was trained on other rows or tokens, InputFileError for a file
    that is none, DamageFound for one that was changed.
    """
    if not isinstance(config, DistillConfig):
        return None
    path = resolve_checkpoint(config.teacher)
    content = load_checkpoint(path)
    theirs = config_of(content, path).model
    if theirs.reads_embeddings and data.embeddings is None:
        raise RequestError(
            f"teacher {path} reads stored caption embeddings (model.text.name=stored), which come only with a student "
            "that reads them, too: set model.text.name=stored, or take another teacher"
        )
    with content_fits(path):
        check_same_inputs(content, data, path)
        model = build_model(theirs, input_dim=input_dims(content), tokens=tokens)
        model.load_state_dict(content["model"])
    return TeacherTowers(model.to(world.device), hash_file(path), world)
