"""Thumbnails of photographs: the work of ``bench_thumbnails.py``, for a worker and for a ``ProcessPoolExecutor``."""

import os
import random
from pathlib import Path

from PIL import Image

from fastq import App

PHOTOS = 64
SIZE = (480, 360)
DIRECTORY = "THUMBNAILS_DIRECTORY"

app = App()


def make_photos(directory: Path) -> None:
    """Write JPEG files with as much detail as photographs have."""
    drawn = random.Random(7)
    for number in range(PHOTOS):
        coarse = Image.frombytes("RGB", (48, 36), drawn.randbytes(48 * 36 * 3))
        coarse.resize(SIZE, Image.Resampling.BICUBIC).save(directory / f"{number}.jpg", quality=85)


def make_thumbnail(number: int) -> int:
    """Write the thumbnail of one photograph; return its size in bytes."""
    directory = Path(os.environ[DIRECTORY])
    target = directory / f"{number}.thumbnail.jpg"
    with Image.open(directory / f"{number % PHOTOS}.jpg") as image:
        image.thumbnail((128, 128))
        image.save(target)
    size = target.stat().st_size
    target.unlink()
    return size


@app.task("thumbnail", retention=600)
def thumbnail(number: int) -> int:
    """Make a thumbnail."""
    return make_thumbnail(number)
