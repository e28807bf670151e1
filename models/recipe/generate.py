#!/usr/bin/env python3
"""Text for the demo pair: a grammar over a small world model, five kinds of conversation.

A document is a conversation of one kind, rendered in the ChatML style. Document `index` of `seed` is the
same bytes on every machine and Python version: the only randomness is SplitMix64 below, keyed by the two
numbers, and only the standard library is used.

The kinds, and what they are for in the demo:

  story  a chain of gifts: a hero walks from place to place, helps whoever is there with the thing in hand
         and is given the next thing, until the thing that the hero's wish needs is found
  qa     a story (told just before, or given by the user) and questions about it; every answer is in the story
  json   an array of records; most values follow from earlier ones (a ship's crew from its type, ...)
  code   small Python: a class with the fields asked for, or functions over a list
  steps  numbered lists of invented recipes; every word slot is drawn uniformly and without repetition, so no
         model can foresee it: the kind on which speculation is meant to do badly

Choices elsewhere are skewed (pick_skewed), so that the likeliest continuation is well defined.

  generate.py --seed 1 --documents 5            print five documents, rendered
  generate.py --seed 1 --documents 9 --jsonl    one JSON object per line: kind, messages
"""
import argparse
import json

KINDS = ("story", "qa", "json", "code", "steps")
KIND_WEIGHTS = (34, 20, 18, 16, 12)  # in hundredths of the documents
MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Rng:
    """SplitMix64. `below` uses the high bits by multiplication: exact, and the bias (2^-50) is of no interest."""

    def __init__(self, seed, index):
        self.state = mix((mix(seed + 1) + index) & MASK)  # mixed twice: neighbouring seeds share nothing

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mix(self.state)

    def below(self, n):
        return (self.next() * n) >> 64

    def chance(self, percent):
        return self.below(100) < percent

    def pick(self, items):
        return items[self.below(len(items))]

    def pick_skewed(self, items):
        """Each item is twice as likely as the next one."""
        i = 0
        while i + 1 < len(items) and self.chance(45):
            i += 1
        return items[i]

    def sample(self, items, n):
        pool = list(items)
        for i in range(n):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:n]


# ---------------------------------------------------------------- the world
SHE, HE = ("she", "her", "her"), ("he", "him", "his")
NAMES = {n: SHE for n in "Ada Bela Clara Dora Elsa Flora Greta Hanna Ida Juna Kira Lina Mila Nora Olga Pia Rosa Tilda Una Vera".split()}
NAMES.update({n: HE for n in "Anton Bruno Carl David Emil Felix Gus Hugo Ivan Jonas Kurt Leo Max Nils Otto Pip Rolf Sam Tom Willi".split()})

ANIMALS = {  # animal: (home, food, what it is good at)
    "fox": ("in a den under the oak", "blackberries", "finding paths"),
    "rabbit": ("in a burrow in the meadow", "clover", "running fast"),
    "bear": ("in a cave on the hill", "honey", "carrying heavy things"),
    "otter": ("on the bank of the river", "fish", "swimming"),
    "owl": ("in a hollow tree", "warm bread", "reading old books"),
    "mouse": ("in a hole behind the mill", "cheese", "hiding"),
    "hedgehog": ("under a heap of leaves", "apples", "waiting patiently"),
    "badger": ("in a tunnel under the garden", "mushrooms", "digging"),
    "squirrel": ("at the top of a pine tree", "nuts", "climbing"),
    "frog": ("by the pond", "soup", "singing"),
    "turtle": ("on the shore of the lake", "lettuce", "listening"),
    "deer": ("at the edge of the forest", "sweet grass", "jumping"),
    "cat": ("in the house of the baker", "milk", "sleeping"),
    "goose": ("in the yard of the farm", "barley", "counting"),
    "beaver": ("in a lodge of branches", "willow bark", "building"),
    "crow": ("on the roof of the tower", "cherries", "solving puzzles"),
}
PLACES = {  # place: (who is usually there, something to see)
    "the river": ("otter", "The water was clear and cold."),
    "the hill": ("bear", "From the top one could see the whole valley."),
    "the old mill": ("mouse", "The big wheel turned slowly."),
    "the meadow": ("rabbit", "The grass was full of flowers."),
    "the harbor": ("goose", "Three small boats lay in the sun."),
    "the library": ("owl", "The shelves were full of dusty books."),
    "the garden": ("badger", "The beans were taller than the fence."),
    "the forest": ("deer", "The light was green and soft."),
    "the lake": ("turtle", "The surface was as smooth as glass."),
    "the tower": ("crow", "A hundred steps went up to the top."),
    "the orchard": ("hedgehog", "The trees were heavy with fruit."),
    "the bakery": ("cat", "The air smelled of fresh bread."),
}
THINGS = {  # thing: (trouble that it ends, how it ends it, wish that it fulfils, how the wish ends)
    "rope": ("{his} boat was drifting away", "tied the boat to a tree with the rope", "climb the high rock", "climbed the high rock with the rope and looked far over the land"),
    "lantern": ("it was too dark to find the way home", "lit the lantern and led {him} home", "see the deep cave", "walked into the deep cave with the lantern and saw the shining stones"),
    "map": ("{he} was lost and did not know the way", "opened the map and showed {him} the way", "find the hidden spring", "followed the map and found the hidden spring"),
    "key": ("the door of {his} house was locked", "opened the door with the key", "open the old chest", "opened the old chest with the key and found a letter from long ago"),
    "basket": ("{his} fruit had fallen on the ground", "gathered the fruit in the basket", "bring apples to the village feast", "filled the basket with apples and brought it to the village feast"),
    "blanket": ("{he} was cold and could not sleep", "wrapped {him} in the warm blanket", "sleep under the stars", "lay down on the blanket and slept under the stars"),
    "whistle": ("{his} little brother had run away", "blew the whistle until the little brother came back", "call the wild geese", "blew the whistle and the wild geese came down from the sky"),
    "kite": ("there was nothing to play with", "let the kite fly high and gave {him} the string", "touch the clouds", "let the kite rise until it touched the clouds"),
    "bell": ("nobody could hear {him} calling", "rang the bell until everybody came", "wake the sleeping giant", "rang the bell and the sleeping giant woke up and smiled"),
    "jar of honey": ("{he} had not eaten since yesterday", "shared the jar of honey with {him}", "bake a honey cake", "baked a honey cake with the jar of honey and shared it with everyone"),
    "ladder": ("{his} hat was hanging in a tree", "leaned the ladder on the tree and took down the hat", "look into the nest of the eagle", "climbed the ladder and looked into the nest of the eagle"),
    "shovel": ("a heap of sand was lying on {his} doorstep", "cleared the doorstep with the shovel", "plant a young tree", "dug a hole with the shovel and planted a young tree"),
    "hammer": ("the roof of {his} house was broken", "mended the roof with the hammer", "build a small house", "took the hammer and built a small house with a red door"),
    "net": ("{his} ball had fallen into the water", "pulled the ball out of the water with the net", "catch a silver fish", "caught a silver fish with the net and let it go again"),
}
# Heroes from outside the forest, so that a model learns to take over a word that it is given.
VISITORS = "bat bee boy camel dragon duck elephant fairy farmer ghost giant girl horse king knight lion monkey panda parrot penguin pig pirate princess queen robot sailor shark sheep snail snake spider swan tiger whale witch wizard wolf zebra".split()
VISITOR = ("in a small house at the edge of the village", "pancakes", "dreaming")
SYLLABLES = "ba be bo da di do el fa fi ga go ha ka ki ko la le li lo ma mi mo na ne ni no pa pe po ra ri ro sa si so ta ti to va ve vi wa xa yo za zo".split()
TRAITS = ("small", "brave", "clever", "quiet", "cheerful", "curious", "kind", "young")
WEATHER = {"sunny": "The sky was blue", "windy": "The wind shook the trees", "foggy": "A white fog lay over the land", "rainy": "Rain fell on the leaves", "snowy": "Snow covered the ground"}
SYSTEM = {
    "story": ("You are a friendly storyteller.", "You tell short stories for children."),
    "qa": ("You answer questions about stories.", "Answer only from the story."),
    "json": ("You answer with JSON only.", "Reply with valid JSON and nothing else."),
    "code": ("You write small Python programs.", "You are a careful programmer."),
    "steps": ("You write clear instructions.", "Answer with a numbered list."),
}


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def cap(text):
    return text[0].upper() + text[1:]


def of(text, forms):
    return text.format(he=forms[0], him=forms[1], his=forms[2])


def pronouns(name):
    """Names of the list have their own; an invented name goes by its last letter."""
    return NAMES.get(name) or (SHE if name[-1] in "aei" else HE)


def creature(animal):
    return ANIMALS.get(animal, VISITOR)


def listed(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


# ---------------------------------------------------------------- stories
def make_world(rng, n_stops):
    """A plot: hero, wish, and stops of (place, animal, name, thing used, thing given)."""
    names = rng.sample(sorted(NAMES), n_stops + 1)
    things = rng.sample(list(THINGS), n_stops + 1)
    places = rng.sample(list(PLACES), n_stops)
    hero = rng.pick(VISITORS) if rng.chance(20) else rng.pick(list(ANIMALS))
    if rng.chance(15):
        names[0] = cap("".join(rng.sample(SYLLABLES, 2 + rng.below(2))))
    stops = []
    for i, place in enumerate(places):
        animal = PLACES[place][0] if rng.chance(80) else rng.pick(list(ANIMALS))
        stops.append((place, animal, names[i + 1], things[i], things[i + 1]))
    return {"name": names[0], "animal": hero, "trait": rng.pick_skewed(TRAITS), "weather": rng.pick_skewed(list(WEATHER)),
            "first": things[0], "wish": things[-1], "stops": stops}


def tell(rng, w):
    name, pro = w["name"], pronouns(w["name"])
    home, food, skill = creature(w["animal"])
    he, him, his = pro
    lines = [
        f"Once upon a time there was a {w['trait']} {w['animal']} named {name}. {name} lived {home}. {cap(he)} loved {food} and was good at {skill}."
        f" More than anything {he} wanted to {THINGS[w['wish']][2]}, but for that {he} needed {article(w['wish'])}. All {he} had was {article(w['first'])}.",
        f"One {w['weather']} morning {name} took the {w['first']} and went out into the world. {WEATHER[w['weather']]}, and {rng.pick_skewed(('the day was still young', 'the birds were singing', 'nobody else was awake'))}.",
    ]
    for i, (place, animal, friend, used, given) in enumerate(w["stops"]):
        start = "First" if i == 0 else ("At last" if i + 1 == len(w["stops"]) else rng.pick_skewed(("Then", "Next", "After that")))
        fpro = pronouns(friend)
        text = f"{start} {name} came to {place}. {PLACES[place][1]} There {he} met {article(animal)} named {friend}."
        text += f" {friend} {rng.pick_skewed(('was sad', 'looked worried', 'sighed'))}, because {of(THINGS[used][0], fpro)}."
        text += rng.pick_skewed((f' "Do not worry," said {name}, "I can help you."', f' "I know what to do," said {name}.', f" {name} thought for a moment."))
        text += f" {cap(he)} {of(THINGS[used][1], fpro)}."
        text += rng.pick_skewed((f' "Thank you, {name}!" said {friend}.', f" {friend} laughed with joy."))
        text += f" {cap(fpro[0])} gave {him} {article(given)} and {rng.pick_skewed(('waved goodbye', 'wished ' + him + ' good luck'))}."
        lines.append(text)
    end = f"Now {name} had {article(w['wish'])}. {cap(he)} {THINGS[w['wish']][3]}."
    friends = listed([s[2] for s in w["stops"]])
    end += f" In the evening {he} went home, ate {food} and thought of {his} new friends {friends}."
    end += rng.pick_skewed((" From that day on they were friends forever.", f" {name} was tired and happy.", " Whoever helps others is never alone."))
    lines.append(end)
    return "\n\n".join(lines)


def story_request(rng, w):
    a, name, place, thing = w["animal"], w["name"], w["stops"][0][0], w["wish"]
    return rng.pick((
        f"Tell me a story about {article(a)} named {name}.", f"Tell me about {article(a)}.", f"Tell me a story about {article(a)} and {article(thing)}.",
        f"Write a short story about {article(a)} named {name} who wants to {THINGS[thing][2]}.", f"Please tell me a bedtime story about {article(a)}.",
        f"Tell me a story that begins at {place}.", f"I would like to hear a story about {name} the {a}.", f"Write a story about {w['trait']} {name}.",
        f"Can you tell me a story with {article(w['stops'][-1][1])} in it?", f"Tell me a story.",
    ))


def make_story(rng):
    w = make_world(rng, 3 + rng.below(3))
    return [("user", story_request(rng, w)), ("assistant", tell(rng, w))]


# ---------------------------------------------------------------- questions
def questions(w):
    """All questions that the plot answers, with their answers."""
    name, (he, him, his) = w["name"], pronouns(w["name"])
    home, food, skill = creature(w["animal"])
    out = [(f"Who is the story about?", f"The story is about a {w['trait']} {w['animal']} named {name}."),
           (f"Where did {name} live?", f"{name} lived {home}."), (f"What did {name} love to eat?", f"{name} loved {food}."),
           (f"What was {name} good at?", f"{name} was good at {skill}."),
           (f"What did {name} want?", f"{name} wanted to {THINGS[w['wish']][2]}."),
           (f"What did {name} have at the beginning?", f"At the beginning {name} had {article(w['first'])}."),
           (f"How was the weather?", f"It was a {w['weather']} morning. {WEATHER[w['weather']]}."),
           (f"How does the story end?", f"{name} {THINGS[w['wish']][3]}."),
           (f"How many friends did {name} find?", f"{name} found {len(w['stops'])} friends: {listed([s[2] for s in w['stops']])}.")]
    for place, animal, friend, used, given in w["stops"]:
        pro = pronouns(friend)
        out += [(f"Who did {name} meet at {place}?", f"At {place} {name} met {article(animal)} named {friend}."),
                (f"Why did {friend} need help?", f"{friend} needed help because {of(THINGS[used][0], pro)}."),
                (f"How did {name} help {friend}?", f"{name} {of(THINGS[used][1], (pro[0], friend, pro[2]))}."),
                (f"What did {friend} give to {name}?", f"{friend} gave {article(given)} to {name}.")]
    return out


def make_qa(rng):
    if rng.chance(6):
        return rng.pick(SMALL_TALK)
    w = make_world(rng, 2 + rng.below(2))
    told = tell(rng, w)
    pool = questions(w)
    if rng.chance(30):  # follow-up questions, one at a time
        messages = [("user", story_request(rng, w)), ("assistant", told)]
        for question, answer in rng.sample(pool, 2 + rng.below(4)):
            messages += [("user", question), ("assistant", answer)]
        return messages
    chosen = rng.sample(pool, min(len(pool), 6 + rng.below(5)))
    numbered = "\n".join(f"{i + 1}. {q}" for i, (q, _) in enumerate(chosen))
    repeat = rng.chance(65)
    ask = "Answer the questions about the story." + (" Repeat each question." if repeat else "")
    answer = "\n".join((f"{i + 1}. {q}\n   {a}" if repeat else f"{i + 1}. {a}") for i, (q, a) in enumerate(chosen))
    return [("user", f"{ask}\n\n{told}\n\n{numbered}"), ("assistant", answer)]


ABOUT = "I am a small demo model. I can tell a story, answer questions about it, write JSON records, small Python programs and lists of steps."
SMALL_TALK = [[("user", q), ("assistant", a)] for q, a in (
    ("Hello!", "Hello! " + ABOUT), ("Hi", "Hello! " + ABOUT), ("Hello, how are you?", "Hello! I am well. " + ABOUT), ("Who are you?", ABOUT),
    ("What can you do?", ABOUT), ("Help", ABOUT), ("What are you?", ABOUT), ("Thank you!", "You are welcome. " + ABOUT), ("Good morning!", "Good morning! " + ABOUT))]

# ---------------------------------------------------------------- JSON records
SHIPS = {"ferry": (12, "passengers"), "trawler": (8, "fish"), "tug": (5, "coal"), "barge": (4, "sand"), "clipper": (30, "tea")}
BOOKS = {"The Silver Lake": ("Nora Winter", "novel"), "A Map of Stars": ("Otto Berg", "science"), "Bread and Salt": ("Clara Field", "cooking"),
         "The Last Lantern": ("Hugo Stone", "mystery"), "Seven Rivers": ("Mila Brook", "travel"), "The Quiet Garden": ("Ida Rose", "poetry")}
TOOLS = {"hammer": ("steel", 12), "saw": ("steel", 18), "ladder": ("wood", 45), "rope": ("hemp", 9), "lantern": ("brass", 24), "shovel": ("iron", 15)}
CITIES = {"Northport": "coast", "Oakfield": "plain", "Highrock": "mountain", "Rivermouth": "coast", "Greenhill": "mountain", "Longmeadow": "plain"}


def rec_ship(rng, i):
    kind = rng.pick_skewed(list(SHIPS))
    crew, cargo = SHIPS[kind]
    return {"id": i, "name": rng.pick(sorted(NAMES)), "type": kind, "crew": crew, "cargo": cargo, "harbor": rng.pick_skewed(list(CITIES)), "at_sea": rng.chance(70)}


def rec_book(rng, i):
    title = rng.pick(list(BOOKS))
    author, genre = BOOKS[title]
    return {"id": i, "title": title, "author": author, "genre": genre, "pages": 100 + 50 * rng.pick_skewed((2, 1, 4, 3)), "in_stock": rng.chance(75)}


def rec_animal(rng, i):
    animal = rng.pick(list(ANIMALS))
    home, food, skill = ANIMALS[animal]
    return {"id": i, "name": rng.pick(sorted(NAMES)), "animal": animal, "age": 1 + rng.pick_skewed((2, 4, 1, 6, 8)), "home": home, "food": food, "skills": [skill, "telling stories"][:1 + rng.below(2)]}


def rec_tool(rng, i):
    tool = rng.pick(list(TOOLS))
    material, price = TOOLS[tool]
    return {"id": i, "tool": tool, "material": material, "price": price, "currency": "EUR", "in_stock": rng.chance(75), "size": {"unit": "cm", "length": price * 10}}


def rec_weather(rng, i):
    kind = rng.pick_skewed(("sunny", "rainy", "windy", "foggy", "snowy"))
    low = {"sunny": 15, "rainy": 9, "windy": 11, "foggy": 6, "snowy": -4}[kind]
    return {"day": i, "city": rng.pick_skewed(list(CITIES)), "weather": kind, "low": low, "high": low + 8, "warning": None if kind in ("sunny", "rainy") else kind}


RECORDS = {"ships": rec_ship, "books": rec_book, "animals": rec_animal, "tools": rec_tool, "weather reports": rec_weather}


def make_json(rng):
    what = rng.pick(list(RECORDS))
    n = 4 + rng.below(7)
    records = [RECORDS[what](rng, i + 1) for i in range(n)]
    if rng.chance(12):
        return [("user", f"Write one record of {what} as JSON."), ("assistant", json.dumps(records[0], indent=2))]
    ask = rng.pick((f"Write {n} {what} as JSON.", f"Give me a JSON array of {n} {what}.", f"List {n} {what} in JSON format.", f"Write a JSON document with {n} {what}."))
    return [("user", ask), ("assistant", json.dumps({what.split()[-1]: records} if "document" in ask else records, indent=2))]


# ---------------------------------------------------------------- code
CLASSES = {"Ship": ("name", "crew", "cargo", "harbor", "speed"), "Book": ("title", "author", "pages", "price"), "Animal": ("name", "age", "food", "home"),
           "Tool": ("name", "material", "price", "weight"), "City": ("name", "people", "river", "country"), "Garden": ("owner", "trees", "flowers", "size")}
NOUNS = ("apples", "prices", "numbers", "lengths", "ages", "points", "weights", "days")
FUNCTIONS = {
    "largest": ("the largest of the {n}", ["    best = {n}[0]", "    for {s} in {n}:", "        if {s} > best:", "            best = {s}", "    return best"]),
    "smallest": ("the smallest of the {n}", ["    best = {n}[0]", "    for {s} in {n}:", "        if {s} < best:", "            best = {s}", "    return best"]),
    "total": ("the sum of the {n}", ["    total = 0", "    for {s} in {n}:", "        total += {s}", "    return total"]),
    "count": ("how many {n} there are", ["    count = 0", "    for {s} in {n}:", "        count += 1", "    return count"]),
    "average": ("the mean of the {n}", ["    if not {n}:", "        return 0", "    return sum({n}) / len({n})"]),
    "double": ("a list with twice each of the {n}", ["    result = []", "    for {s} in {n}:", "        result.append(2 * {s})", "    return result"]),
    "reverse": ("the {n} in reverse order", ["    result = []", "    for {s} in {n}:", "        result.insert(0, {s})", "    return result"]),
    "positive": ("only the {n} above zero", ["    result = []", "    for {s} in {n}:", "        if {s} > 0:", "            result.append({s})", "    return result"]),
}


def make_class(rng):
    name = rng.pick(list(CLASSES))
    fields = rng.sample(CLASSES[name], 3 + rng.below(2))
    low = name.lower()
    out = [f"class {name}:", f'    """{cap(article(low))} with {listed(fields)}."""', "", f"    def __init__(self, {', '.join(fields)}):"]
    out += [f"        self.{f} = {f}" for f in fields]
    for f in fields:
        out += ["", f"    def get_{f}(self):", f'        """Return the {f} of the {low}."""', f"        return self.{f}",
                "", f"    def set_{f}(self, {f}):", f'        """Change the {f} of the {low}."""', f"        self.{f} = {f}"]
    out += ["", "    def to_dict(self):", f'        """Return the {low} as a dictionary."""', "        return {"]
    out += [f'            "{f}": self.{f},' for f in fields] + ["        }"]
    ask = rng.pick((f"Write a Python class {name} with the fields {listed(fields)}.", f"Write a class {name} with {listed(fields)}.", f"I need a Python class for {article(low)} with {listed(fields)}."))
    return [("user", ask), ("assistant", "\n".join(out))]


def make_functions(rng):
    noun = rng.pick(NOUNS)
    chosen = rng.sample(list(FUNCTIONS), 3 + rng.below(4))
    out = []
    for f in chosen:
        doc, body = FUNCTIONS[f]
        out += [f"def {f}_{noun}({noun}):", f'    """Return {doc.format(n=noun)}."""'] + [line.format(n=noun, s=noun[:-1] if noun != "prices" else "price") for line in body] + ["", ""]
    numbers = [str(1 + rng.below(9)) for _ in range(4)]
    out += ['if __name__ == "__main__":', f"    {noun} = [{', '.join(numbers)}]"] + [f"    print({f}_{noun}({noun}))" for f in chosen]
    ask = rng.pick((f"Write Python functions for a list of {noun}: {listed(chosen)}.", f"Write a Python program with the functions {listed(chosen)} for {noun}.", f"Write functions for {listed(chosen)} of {noun}."))
    return [("user", ask), ("assistant", "\n".join(out))]


def make_code(rng):
    return make_class(rng) if rng.chance(50) else make_functions(rng)


# ---------------------------------------------------------------- steps: the kind that cannot be foreseen
VERBS = ("add boil carry chop collect cool count cover crush cut dip dry fold fry grind hang heat hide lift light melt mix move paint peel pour press push roast roll rub salt shake "
         "slice smoke soak spread stir swap taste throw tie toss turn warm wash weigh wrap").split()
UNITS = "bags bowls boxes buckets bundles cups drops grams handfuls heaps jars pieces pinches pounds rows slices spoons strips".split()
LOOKS = ("amber black blue bitter bright broken brown clean coarse cold crisp curly dark dry dusty early empty fine flat fresh frozen golden gray green hollow hot late loose narrow old "
         "pale plain purple red ripe rough round salty sharp shiny silver slow soft sour spicy stale sticky sweet thick thin tiny violet warm wet white wild wooden yellow").split()
STUFF = ("acorns almonds ash bark barley beans beets berries bones butter cabbage candles carrots chalk chestnuts cinnamon clay cotton cream dust eggs feathers fern flour garlic ginger "
         "grapes grass gravel hay herbs honey ice ink ivy lard leaves lemons lentils lime mint moss mud mustard nettles nuts oats oil olives onions paper parsley pears pebbles pepper petals "
         "plums pollen pumpkin quartz raisins resin rice rope roots rust rye salt sand seeds shells silk smoke snow soap straw sugar tar tea thyme turnips vinegar wax wheat wool yarn yeast").split()
WHERE = ("above the stove", "behind the barn", "below the stairs", "beside the well", "by the window", "in a clay pot", "in a copper pan", "in the cellar", "in the shade", "near the gate", "on a flat stone",
         "on the balcony", "on the roof", "over a candle", "under a cloth", "under the table", "with a broom", "with a fork", "with both hands", "with closed eyes")
UNTIL = ("it cracks", "it drips", "it fades", "it floats", "it glows", "it grows cold", "it hums", "it melts", "it shines", "it sinks", "it smells of rain", "it splits", "it stops moving", "it thickens",
         "it turns blue", "it turns gray", "nobody looks", "noon", "the bell rings", "the cat wakes", "the clock strikes", "the moon rises", "the tea is ready", "the wind turns")
DISHES = "balm bread broth candy dye glue ink jam lotion paint paste polish powder sauce soap soup stew syrup tea tonic varnish wine".split()


def make_steps(rng):
    n = 10 + rng.below(9)
    verbs, looks, stuff = rng.sample(VERBS, n), rng.sample(LOOKS, n), rng.sample(STUFF, n)
    dish = f"{rng.pick(LOOKS)} {rng.pick(STUFF)} {rng.pick(DISHES)}"
    out = []
    for i in range(n):
        form = rng.below(3)
        text = f"{i + 1}. {cap(verbs[i])} {2 + rng.below(98)} {rng.pick(UNITS)} of {looks[i]} {stuff[i]}"
        text += f" {rng.pick(WHERE)}" if form != 1 else ""
        text += f" until {rng.pick(UNTIL)}" if form != 0 else ""
        out.append(text + ".")
    ask = rng.pick((f"How do I make {dish}?", f"Give me the steps for {dish}.", f"List the steps to prepare {dish}.", f"Write a recipe for {dish} in {n} steps."))
    return [("user", ask), ("assistant", "\n".join(out))]


# ---------------------------------------------------------------- documents
MAKERS = {"story": make_story, "qa": make_qa, "json": make_json, "code": make_code, "steps": make_steps}


def document(seed, index, kind=None):
    """Document `index` of the stream `seed`: (kind, [(role, text), ...])."""
    rng = Rng(seed, index)
    draw = rng.below(100)
    if kind is None:
        kind = next(k for i, k in enumerate(KINDS) if draw < sum(KIND_WEIGHTS[:i + 1]))
    system = [("system", rng.pick(SYSTEM[kind]))] if rng.chance(25) else []
    return kind, system + MAKERS[kind](rng)


def render(messages):
    """The ChatML-style text, as the chat template writes it, closed by the end-of-text token."""
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages) + "<|endoftext|>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--documents", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--jsonl", action="store_true")
    args = parser.parse_args()
    for index in range(args.first, args.first + args.documents):
        kind, messages = document(args.seed, index, args.kind)
        if args.jsonl:
            print(json.dumps({"kind": kind, "messages": [{"role": r, "content": t} for r, t in messages]}))
        else:
            print(render(messages))


if __name__ == "__main__":
    main()
