"""Print made articles of six templates as JSON Lines, for a trial of `audit` on documents::

    $ python -m benchmarks.machine_made > stubs.jsonl

Places, people and species have made names; other gaps are filled by numbers and frequent words.
"""

import json
import random
import string

NUM_STUBS = 400
TEMPLATES = {
    "village": (
        "$name is a village in the administrative district of Gmina $name, within $name County, in "
        "$side Poland.",
        "It lies approximately $number km $side of $name and $number km $side of the regional "
        "capital $name.",
        "The village has a population of $number.",
    ),
    "species": (
        "$name $name is a species of $animal in the family $name.",
        "It was described by $name in $year.",
        "It is found in $country, where it lives in forests up to a height of $number metres.",
        "The wingspan is about $number mm.",
    ),
    "town": (
        "$name is a city in $name County, $country, United States.",
        "The population was $number at the $year census.",
        "According to the United States Census Bureau, the city has a total area of $number square "
        "miles, of which $number square miles is land and $number square miles is water.",
        "There were $number households out of which $number% had children under the age of 18.",
    ),
    "asteroid": (
        "$number $name is a $colour asteroid discovered on $month $number, $year, by $name $name "
        "at $name.",
        "It takes $number years to orbit the Sun once at a mean distance of $number AU.",
        "It was named after $name, a town in $country.",
    ),
    "footballer": (
        "$name $name (born $number $month $year) is a former footballer from $country who played "
        "as a $position.",
        "He made his debut for $name on $number $month $year in a match against $name.",
        "In total he played $number matches and scored $number goals.",
    ),
    "river": (
        "The $name is a river in $country.",
        "It is a $hand tributary of the $name, into which it flows near $name.",
        "Its length is $number km and the size of its basin is $number square kilometres.",
        "The source of the river is in the $name mountains.",
    ),
}
WORDS = {
    "side": ("north", "south", "east", "west", "north-east", "south-west"),
    "animal": ("beetle", "moth", "fly", "spider", "fish", "snail"),
    "country": ("North America", "Brazil", "China", "Texas", "Germany", "South Africa", "Canada"),
    "colour": ("dark", "bright", "red", "small"),
    "month": ("January", "March", "May", "July"),
    "position": ("midfielder", "defender", "forward", "goalkeeper"),
    "hand": ("left", "right"),
}
SYLLABLES = [
    "ka",
    "lo",
    "mir",
    "sten",
    "bo",
    "wa",
    "dra",
    "pol",
    "vel",
    "go",
    "ruz",
    "che",
    "ni",
    "ha",
]


class _Fillings(dict[str, str]):
    """Another filling each time that a gap is filled."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def __missing__(self, gap: str) -> str:
        if gap == "name":
            return "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(2, 4))).capitalize()
        if gap == "year":
            return str(self.rng.randint(1790, 2015))
        if gap == "number":
            return f"{self.rng.randint(1, 9000):,}"
        return self.rng.choice(WORDS[gap])


def main() -> None:
    """Print the stubs; the last sentence of half of them is left out."""
    rng = random.Random(0)
    fillings = _Fillings(rng)
    names = list(TEMPLATES)
    for number in range(NUM_STUBS):
        name = names[number % len(names)]
        sentences = list(TEMPLATES[name])
        if rng.random() < 0.5:
            del sentences[-1]
        text = string.Template(" ".join(sentences)).substitute(fillings)
        print(json.dumps({"id": f"stub-{name}-{number}", "text": text}))


if __name__ == "__main__":
    main()
