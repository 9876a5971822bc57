"""Pictures in base64, by what the tiny model that sees says of each."""

from __future__ import annotations

import base64
import io

from PIL import Image, ImageDraw

QUESTION = "What is in this image?"


def picture(color: str, shape: str) -> str:
    """A picture as base64."""
    image = Image.new("RGB", (64, 64), "white")
    getattr(ImageDraw.Draw(image), shape)((12, 12, 52, 52), fill=color)
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


PICTURES = {
    "I see a red circle.": picture("red", "ellipse"),
    "I see a blue square.": picture("blue", "rectangle"),
}
