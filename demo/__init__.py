"""The whole path on a corpus that this package draws itself: `python -m demo`.

    scenes ──> places + sprites + movement ──> frames ──> ffmpeg ──> videos/*.mp4
       └─────> narration ──> caption_files ─────────────────────> captions/*.vtt, *.srt      videos.csv

Run from the checkout; never installed. Everything is a pure function of the seed.
"""
