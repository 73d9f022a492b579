"""Data sets as published to input manifests: one file a data set, whose docstring states the form it reads.

`adapt.py` is the way in. `items.py` is what adapters say, `tables.py`, `parquet.py` and `img2dataset.py` read indexes,
`media.py` finds files, `output.py` writes.
"""

from __future__ import annotations

from preprocess.adapters import (
    cc3m,
    coco,
    didemo,
    folder,
    folds,
    hmdb51,
    howto100m,
    kinetics,
    laion,
    msrvtt,
    msvd,
    ssv2,
    ucf101,
    webvid,
    youcook2,
)
from preprocess.adapters.items import Adapter
from preprocess.adapters.media import ANY_KINDS, IMAGE_KINDS, VIDEO_KINDS

_FOLD = frozenset({"fold"})
_FOLDER = frozenset({"folder"})
_BOTH = frozenset({"file", "folder"})
_WRITTEN = (
    "these captions were written, not spoken: give the manifest set clean: {rolling: false, overlaps: false}, "
    "or what one says after another is cut"
)

ADAPTERS: dict[str, Adapter] = {
    "folder": Adapter(
        folder.read,
        "a folder of media with caption files of the same names beside them",
        "folder clips",
        (),
        ANY_KINDS,
        takes=_FOLDER,
    ),
    "howto100m": Adapter(
        howto100m.read,
        "HowTo100M_v1.csv",
        "howto100m HowTo100M_v1.csv --media videos --captions raw_caption.json",
        howto100m.COLUMNS,
        VIDEO_KINDS,
        frozenset({"captions"}),
    ),
    "youcook2": Adapter(
        youcook2.read,
        "youcookii_annotations_trainval.json, or validation_youcook.csv",
        "youcook2 youcookii_annotations_trainval.json --media raw_videos",
        youcook2.COLUMNS,
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "msrvtt": Adapter(
        msrvtt.read,
        "MSRVTT_data.json, or msrvtt_test.csv",
        "msrvtt MSRVTT_data.json --media videos",
        msrvtt.COLUMNS,
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "msvd": Adapter(
        msvd.read,
        "AllVideoDescriptions.txt or video_corpus.csv, with the lists of its split",
        "msvd AllVideoDescriptions.txt train_list.txt val_list.txt test_list.txt --media YouTubeClips",
        (),
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "didemo": Adapter(
        didemo.read,
        "train_data.json, val_data.json, test_data.json",
        "didemo train_data.json val_data.json test_data.json --media videos",
        (),
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "webvid": Adapter(
        webvid.read,
        "results_2M_train.csv, results_2M_val.csv",
        "webvid results_2M_train.csv results_2M_val.csv --media videos",
        webvid.COLUMNS,
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "hmdb51": Adapter(
        hmdb51.read,
        "hmdb51.csv, or the folder testTrainMulti_7030_splits",
        "hmdb51 testTrainMulti_7030_splits --media hmdb51 --out hmdb51/split1.csv --fold 1",
        folds.COLUMNS,
        VIDEO_KINDS,
        _FOLD,
        takes=_BOTH,
    ),
    "ucf101": Adapter(
        ucf101.read,
        "the folder ucfTrainTestlist, or trainlist01.txt and testlist01.txt of it",
        "ucf101 ucfTrainTestlist --media UCF-101 --out UCF-101/split1.csv --fold 1",
        folds.COLUMNS,
        VIDEO_KINDS,
        _FOLD,
        takes=_BOTH,
    ),
    "kinetics": Adapter(
        kinetics.read,
        "train.csv, val.csv, test.csv of Kinetics-400, -600 or -700",
        "kinetics train.csv val.csv --media k400",
        kinetics.COLUMNS,
        VIDEO_KINDS,
    ),
    "ssv2": Adapter(
        ssv2.read,
        "something-something-v2-train.json, -validation.json, -test.json",
        "ssv2 something-something-v2-train.json --media 20bn-something-something-v2",
        ssv2.COLUMNS,
        VIDEO_KINDS,
        advice=_WRITTEN,
    ),
    "coco": Adapter(
        coco.read,
        "captions_train2017.json, captions_val2017.json",
        "coco captions_train2017.json captions_val2017.json --media images",
        coco.COLUMNS,
        IMAGE_KINDS,
        advice=_WRITTEN,
    ),
    "cc3m": Adapter(
        cc3m.read,
        "Train_GCC-training.tsv, with the folder that img2dataset made of it",
        "cc3m Train_GCC-training.tsv --media cc3m",
        cc3m.COLUMNS,
        IMAGE_KINDS,
        advice=_WRITTEN,
    ),
    "laion": Adapter(
        laion.read,
        "Parquet files of URLs and texts, or those of img2dataset, with the folder it made of them",
        "laion laion400m/part-00000.parquet --media images",
        laion.COLUMNS,
        IMAGE_KINDS,
        advice=_WRITTEN,
        takes=_BOTH,
    ),
}
