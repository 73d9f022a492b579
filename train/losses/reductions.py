"""What is summed over the logits, and its gradient, one tile at a time.

Each reduction gives one number a row (a clip against all texts) and, where it says so, one number a text (that text
against all clips of this rank). `reduce` is what autograd may differentiate; `gradient` says the same by hand, from the
finished sums, so that no tile has to be kept.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch.nn import functional as F

from train.losses.grid import lowest

Tensors = tuple[torch.Tensor, ...]


class Part(NamedTuple):
    """What is known of a tile. vectors: given constants of the rows (T,) and of the texts (V,), if the reduction has
    any. sums: the finished sums of the rows and, if it has them, of the texts; grads: their gradients.
    """

    logit_TV: torch.Tensor
    vectors: Tensors
    sums: Tensors = ()
    grads: Tensors = ()


class Reduction(Protocol):
    """in_logs: its sums are logarithms, so that two parts join by logaddexp, else by plus."""

    in_logs: bool

    def reduce(self, part: Part) -> Tensors: ...

    def gradient(self, part: Part) -> tuple[torch.Tensor, Tensors]:
        """(T, V) gradient of the logits, whose memory may be used up, and the tile's part of the vectors' gradients."""
        ...


class LogSums:
    """log of the sum of exp(logit), of rows and of texts."""

    in_logs = True

    def reduce(self, part: Part) -> Tensors:
        return part.logit_TV.logsumexp(dim=1), part.logit_TV.logsumexp(dim=0)

    def gradient(self, part: Part) -> tuple[torch.Tensor, Tensors]:
        (row_T, text_V), (row_grad_T, text_grad_V) = part.sums, part.grads
        by_row_TV = (part.logit_TV - row_T[:, None]).exp_().mul_(row_grad_T[:, None])
        by_text_TV = part.logit_TV.sub_(text_V).exp_().mul_(text_grad_V)
        return by_row_TV.add_(by_text_TV), ()


class RowLogSums:
    """log of the sum of exp(logit), of rows alone."""

    in_logs = True

    def reduce(self, part: Part) -> Tensors:
        return (part.logit_TV.logsumexp(dim=1),)

    def gradient(self, part: Part) -> tuple[torch.Tensor, Tensors]:
        return part.logit_TV.sub_(part.sums[0][:, None]).exp_().mul_(part.grads[0][:, None]), ()


class SoftplusSums:
    """Sum of log(1 + exp(logit)), of rows."""

    in_logs = False

    def reduce(self, part: Part) -> Tensors:
        return (-F.logsigmoid(-part.logit_TV).sum(dim=1),)

    def gradient(self, part: Part) -> tuple[torch.Tensor, Tensors]:
        return part.logit_TV.sigmoid_().mul_(part.grads[0][:, None]), ()


class WeightedLogSums(LogSums):
    """log of the sum of exp(logit x weight): of rows with weight exp(logit / prior - text's vector), of texts with
    weight exp(logit / prior - row's vector). The vectors are log-sums of logit / prior, so the weights are softmaxes.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior

    def reduce(self, part: Part) -> Tensors:
        row_T, text_V = part.vectors
        for_rows_TV = self._weighted(part.logit_TV, text_V)[1]
        for_texts_TV = self._weighted(part.logit_TV, row_T[:, None])[1]
        return for_rows_TV.logsumexp(dim=1), for_texts_TV.logsumexp(dim=0)

    def gradient(self, part: Part) -> tuple[torch.Tensor, Tensors]:
        (row_T, text_V), (row_sum_T, text_sum_V), (row_grad_T, text_grad_V) = part.vectors, part.sums, part.grads
        first_TV, log_text_TV = self._pull(part.logit_TV, text_V, row_sum_T[:, None], row_grad_T[:, None])
        second_TV, log_row_TV = self._pull(part.logit_TV, row_T[:, None], text_sum_V, text_grad_V)
        return first_TV.add_(second_TV), (log_row_TV.sum(dim=1), log_text_TV.sum(dim=0))

    def _weighted(self, logit_TV: torch.Tensor, log_sum: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight, zero where a pair counts for nothing, and the weighted logit, `lowest` there."""
        low = lowest(logit_TV)
        kept_TV = logit_TV > low / 2
        known_TV = logit_TV.masked_fill(~kept_TV, 0)
        weight_TV = (known_TV / self._prior - log_sum).masked_fill(~kept_TV, low).exp()
        return weight_TV, (known_TV * weight_TV).masked_fill(~kept_TV, low)

    def _pull(
        self, logit_TV: torch.Tensor, log_sum: torch.Tensor, total: torch.Tensor, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of the logits and of the log-sums, both (T, V), of one direction."""
        weight_TV, weighted_TV = self._weighted(logit_TV, log_sum)
        pull_TV = grad * (weighted_TV - total).exp()
        # Not logit x weight: where a pair counts for nothing, that would be lowest x 0.
        product_TV = weighted_TV.masked_fill(logit_TV <= lowest(logit_TV) / 2, 0)
        return pull_TV * (weight_TV + product_TV / self._prior), -pull_TV * product_TV
