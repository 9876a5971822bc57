"""Draws the pictures that the tiny model learns to read, and says what is in each.

A picture has one colour all over, one to four equal shapes of one colour, two different things side by side, or a digit. It
depends on nothing but its generator's seed.
"""

import functools
import math
import random
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

Rgb = tuple[int, int, int]

COLOURS: dict[str, list[Rgb]] = {
    "red": [(255, 0, 0), (220, 20, 60), (200, 30, 30)],
    "green": [(0, 128, 0), (0, 255, 0), (40, 170, 70)],
    "blue": [(0, 0, 255), (30, 80, 220), (20, 40, 150)],
    "yellow": [(255, 255, 0), (250, 220, 40)],
    "orange": [(255, 165, 0), (255, 130, 10)],
    "purple": [(128, 0, 128), (150, 50, 200)],
    "black": [(0, 0, 0), (20, 20, 20)],
    "white": [(255, 255, 255), (242, 242, 242)],
}
"""How a colour may look; drawn with a little noise."""
NOISE = 14
PAPER: list[Rgb] = [(255, 255, 255), (255, 255, 255), (245, 240, 230), (128, 128, 128), (0, 0, 0)]
"""What stands behind most drawings; other backgrounds are any of the colours."""
SHAPES = ["circle", "square", "triangle"]
COUNTS = ["a", "two", "three", "four"]
SIDES = [64, 64, 96, 128, 160, 224, 256]
"""Pixels on each side, before the picture is reduced to what the model sees."""
PAD: Rgb = (122, 116, 104)
"""What a picture that is not square is filled up with, by both engines: CLIP's mean colour."""
GLYPHS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00010 00100 01000 11111",
    "3": "11111 00010 00100 00010 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
}
"""Digits of 5 x 7 squares, for pictures that are drawn without a font."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """Equal shapes, or a digit, in one colour."""

    colour: str
    shape: str
    """One of `SHAPES`, or a digit."""
    count: int = 1

    def __str__(self) -> str:
        if self.shape.isdigit():
            return f"the digit {self.shape} in {self.colour}"
        article = "an" if self.count == 1 and self.colour[0] in "aeiou" else COUNTS[self.count - 1]
        return f"{article} {self.colour} {self.shape}{'s' * (self.count > 1)}"


@dataclass(frozen=True, kw_only=True)
class Picture:
    image: Image.Image
    things: tuple[Thing, ...]
    """From left to right; none: the picture has one colour."""
    background: str | None
    """The name of the colour behind the things, if it has one."""

    @property
    def answer(self) -> str:
        """What the model is to say of it."""
        if not self.things:
            return f"I see only {self.background}."
        return f"I see {' and '.join(map(str, self.things))}."


class Pictures:
    """An endless source of pictures."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw(self) -> Picture:
        r = self.random
        kind = r.choices(["plain", "equal", "pair", "digit"], [8, 44, 18, 30])[0]
        if kind == "plain":
            return self.plain(r.choice(list(COLOURS)))
        colour = r.choice(list(COLOURS))
        if kind == "digit":
            return self.of(Thing(colour=colour, shape=str(r.randrange(10))))
        if kind == "equal":
            count = r.choices([1, 2, 3, 4], [4, 3, 3, 3])[0]
            return self.of(Thing(colour=colour, shape=r.choice(SHAPES), count=count))
        left = Thing(colour=colour, shape=r.choice(SHAPES))
        right = left
        while right == left:
            right = Thing(colour=r.choice(list(COLOURS)), shape=r.choice(SHAPES))
        return self.of(left, right)

    def plain(self, colour: str) -> Picture:
        image = Image.new("RGB", self._size(), self._shade(colour))
        return Picture(image=image, things=(), background=colour)

    def of(self, *things: Thing) -> Picture:
        """A picture of equal shapes, of a digit, or of two single shapes."""
        r = self.random
        width, height = self._size()
        shades = [self._shade(thing.colour) for thing in things]
        name, behind = self._background(shades)
        image = Image.new("RGB", (width, height), behind)
        pen = ImageDraw.Draw(image)
        side = min(width, height)
        if len(things) == 2:
            for index, (thing, shade) in enumerate(zip(things, shades, strict=True)):
                radius = side * r.uniform(0.13, 0.22)
                x = width * (0.27 if index == 0 else 0.73) + side * r.uniform(-0.03, 0.03)
                y = r.uniform(radius, height - radius)
                self._shape(pen, thing.shape, shade, x, y, radius)
        elif things[0].shape.isdigit():
            self._digit(image, things[0].shape, shades[0])
        else:
            for x, y, radius in self._places(things[0].count, width, height):
                self._shape(pen, things[0].shape, shades[0], x, y, radius)
        return Picture(image=image, things=things, background=name)

    # -- parts -----------------------------------------------------------------------------------

    def _size(self) -> tuple[int, int]:
        r = self.random
        side = r.choice(SIDES)
        if r.random() < 0.15:
            other = int(side * r.uniform(1.05, 1.5))
            return (side, other) if r.random() < 0.5 else (other, side)
        return side, side

    def _shade(self, colour: str) -> Rgb:
        r = self.random
        red, green, blue = (
            min(255, max(0, value + r.randint(-NOISE, NOISE) * (r.random() < 0.7)))
            for value in r.choice(COLOURS[colour])
        )
        return red, green, blue

    def _background(self, shades: list[Rgb]) -> tuple[str | None, Rgb]:
        """One from which every shade stands out."""
        while True:
            name: str | None = None
            if self.random.random() < 0.65:
                behind = self.random.choice(PAPER)
            else:
                name = self.random.choice(list(COLOURS))
                behind = self._shade(name)
            if all(math.dist(behind, shade) > 110 for shade in shades):
                return name, behind

    def _places(self, count: int, width: int, height: int) -> list[tuple[float, float, float]]:
        """Centres and radii of shapes that do not touch."""
        r = self.random
        side = min(width, height)
        low, high = [(0.14, 0.42), (0.11, 0.22), (0.10, 0.19), (0.09, 0.17)][count - 1]
        while True:
            radius = side * r.uniform(low, high)
            found: list[tuple[float, float, float]] = []
            for _ in range(40):
                x, y = r.uniform(radius, width - radius), r.uniform(radius, height - radius)
                if all(math.dist((x, y), at[:2]) > 2.3 * radius for at in found):
                    found.append((x, y, radius))
                    if len(found) == count:
                        return found

    def _shape(
        self, pen: ImageDraw.ImageDraw, shape: str, shade: Rgb, x: float, y: float, radius: float
    ) -> None:
        r = self.random
        if shape == "circle":
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=shade)
            return
        # Corners on the circle; the square stands on its side, the triangle on its base.
        corners, start = (4, 45) if shape == "square" else (3, r.choice([-90, -90, 90]))
        turn = start + (r.uniform(-12, 12) if r.random() < 0.4 else 0)
        angles = [math.radians(turn + 360 * corner / corners) for corner in range(corners)]
        pen.polygon(
            [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles],
            fill=shade,
        )

    def _digit(self, image: Image.Image, digit: str, shade: Rgb) -> None:
        r = self.random
        side = min(image.size)
        tall = side * r.uniform(0.4, 0.85)
        mask = _in_squares(digit) if r.random() < 0.4 else _in_font(digit, r.choice([0, 0, 4, 9]))
        wide = max(1, round(tall * mask.width / mask.height * r.uniform(0.9, 1.15)))
        mask = mask.resize((wide, round(tall)), Image.Resampling.NEAREST)
        if r.random() < 0.4:
            mask = mask.rotate(r.uniform(-10, 10), Image.Resampling.BILINEAR, expand=True)
        room = image.width - mask.width, image.height - mask.height
        at = tuple(round(max(0, space) * r.random()) for space in room)
        image.paste(Image.new("RGB", mask.size, shade), (at[0], at[1]), mask)


@functools.cache
def _in_squares(digit: str) -> Image.Image:
    rows = GLYPHS[digit].split()
    small = Image.new("L", (5, 7))
    small.putdata([255 * int(bit) for row in rows for bit in row])
    return small.resize((100, 140), Image.Resampling.NEAREST)


@functools.cache
def _in_font(digit: str, bold: int) -> Image.Image:
    """The digit in Pillow's own font."""
    font = ImageFont.load_default(150)
    left, top, right, bottom = font.getbbox(digit, stroke_width=bold)
    mask = Image.new("L", (math.ceil(right - left), math.ceil(bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), digit, fill=255, font=font, stroke_width=bold)
    return mask


def seen(image: Image.Image, side: int) -> Image.Image:
    """What both engines make of a picture: a square, filled up with `PAD`, of `side` pixels."""
    if image.width != image.height:
        longest = max(image.size)
        square = Image.new("RGB", (longest, longest), PAD)
        square.paste(image, ((longest - image.width) // 2, (longest - image.height) // 2))
        image = square
    return image.resize((side, side), Image.Resampling.BICUBIC)
