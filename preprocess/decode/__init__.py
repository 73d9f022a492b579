"""Getting the right frames of any video, or a typed reason why not."""

from preprocess.decode.clips import Clip, ClipAssembler, iterate_clips
from preprocess.decode.options import RULES, DecodeOptions
from preprocess.decode.reader import VideoReader, open_video, probe
from preprocess.decode.sampling import Sampling
from preprocess.decode.video import DecodeFailure, FrameBlock, VideoInfo

__all__ = [
    "RULES",
    "Clip",
    "ClipAssembler",
    "DecodeFailure",
    "DecodeOptions",
    "FrameBlock",
    "Sampling",
    "VideoInfo",
    "VideoReader",
    "iterate_clips",
    "open_video",
    "probe",
]
