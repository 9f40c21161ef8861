"""Conversations in which the model calls a tool: what the tools are, who asks for them, what they return."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

CITIES = (
    "Paris", "London", "Berlin", "Rome", "Madrid", "Vienna", "Oslo", "Tokyo", "Beijing", "New York", "Lisbon", "Athens", "Cairo", "Dublin",
    "Prague", "Warsaw", "Moscow", "Boston", "Chicago", "Sydney",
)  # fmt: skip
SKIES = ("sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "stormy", "clear")
PLACES = (
    "the lake",
    "the hill",
    "the forest",
    "the village",
    "the sea",
    "the castle",
    "the mill",
    "the river",
    "the mountain",
    "the garden",
)


def _declared(name: str, description: str, key: str, type_: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {key: {"type": type_}}, "required": [key]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = {
    "get_weather": _declared("get_weather", "The weather in a city.", "city", "string"),
    "get_time": _declared("get_time", "The time in a city.", "city", "string"),
    "roll_dice": _declared("roll_dice", "Roll a dice.", "sides", "number"),
    "count_stars": _declared("count_stars", "Count the stars over a place.", "place", "string"),
}


class Use(NamedTuple):
    """One use of a tool: what the user says, what the model thinks before the call and passes, what comes back, thought and answer."""

    tool: str
    asked: str
    thought: str
    arguments: dict[str, Any]
    result: str
    second_thought: str
    answer: str


def use(rng: random.Random, tool: str) -> Use:
    """A fresh use of the tool of this name."""
    return {"get_weather": _weather, "get_time": _time, "roll_dice": _dice, "count_stars": _stars}[tool](rng)


def _weather(rng: random.Random) -> Use:
    city, sky, degrees = rng.choice(CITIES), rng.choice(SKIES), rng.randrange(1, 31)
    asked = rng.choice(
        (
            f"What is the weather in {city}?",
            f"How is the weather in {city} today?",
            f"What is the weather like in {city}?",
            f"Tell me the weather in {city}.",
            f"weather in {city}",
            f"Is it cold in {city}?",
            f"Do I need a coat in {city}?",
        )
    )
    answer = rng.choice(
        (f"In {city} it is {sky}, and it has {degrees} degrees.", f"The weather in {city} is {sky}, with {degrees} degrees.")
    )
    thought = rng.choice(
        (f"I need the weather in {city}, so I call get_weather.", f"The user asks for the weather in {city}. I call get_weather.")
    )
    return Use(
        "get_weather", asked, thought, {"city": city}, f"{sky}, {degrees} degrees", f"It is {sky} in {city}. I will tell the user.", answer
    )


def _time(rng: random.Random) -> Use:
    city, hour, minute = rng.choice(CITIES), rng.randrange(1, 13), rng.randrange(0, 60, 5)
    asked = rng.choice((f"What time is it in {city}?", f"How late is it in {city}?", f"Tell me the time in {city}.", f"time in {city}"))
    now = f"{hour}:{minute:02d}"
    thought = rng.choice((f"I need the time in {city}, so I call get_time.", f"The user asks for the time in {city}. I call get_time."))
    return Use("get_time", asked, thought, {"city": city}, now, f"It is {now} in {city}.", f"It is {now} in {city}.")


def _dice(rng: random.Random) -> Use:
    sides = rng.choice((6, 6, 6, 4, 8, 10, 12, 20))
    shown = rng.randrange(1, sides + 1)
    plain = ("Roll a dice.", "Roll a dice for me, please.", "Throw a dice!", "Can you roll a dice?") if sides == 6 else ()
    asked = rng.choice((*plain, f"Roll a dice with {sides} sides.", f"Please roll a dice with {sides} sides."))
    thought = rng.choice((f"I roll a dice with {sides} sides.", f"The user wants a dice with {sides} sides. I call roll_dice."))
    answer = rng.choice((f"The dice shows {shown}.", f"You have rolled {shown}.", f"It is {shown}."))
    return Use("roll_dice", asked, thought, {"sides": sides}, str(shown), f"The dice shows {shown}.", answer)


def _stars(rng: random.Random) -> Use:
    place, number = rng.choice(PLACES), rng.randrange(10, 1000)
    asked = rng.choice(
        (
            f"How many stars are over {place}?",
            f"Count the stars over {place}.",
            f"How many stars can I see over {place} tonight?",
            f"Please count the stars over {place}.",
        )
    )
    thought = rng.choice(
        (f"I must count the stars over {place}, so I call count_stars.", f"The user asks for the stars over {place}. I call count_stars.")
    )
    answer = rng.choice((f"There are {number} stars over {place}.", f"I counted {number} stars over {place}."))
    return Use("count_stars", asked, thought, {"place": place}, str(number), f"There are {number} stars.", answer)
