#!/usr/bin/env python3
"""Prompts that people ask a small assistant at home: stories, explanations, tips, letters, lists, plans.

  everyday.py --count 6000 [--seed 1] > prompts.txt

A grammar keyed by (seed, index), the same bytes everywhere, each prompt once. Standard library only.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from generate import Rng, article

HEROES = ("fox owl bear rabbit robot dragon mouse whale turtle hedgehog squirrel lighthouse keeper baker fisherman gardener painter pirate astronaut wizard knight "
          "librarian clockmaker postman sailor shepherd musician detective tailor beekeeper").replace("lighthouse keeper", "lighthouse-keeper").split()
TRAITS = "shy brave curious lonely clever forgetful kind sleepy stubborn cheerful tiny old young honest lazy".split()
WISHES = ("learns to swim", "finds a lost letter", "is afraid of the dark", "wants to see the sea", "makes a new friend", "gets lost in a forest", "saves a village from a flood",
          "finds a hidden door", "learns to bake bread", "builds a boat", "misses a train", "plants a strange seed", "hears music at night", "meets a ghost", "wins a race",
          "learns to share", "repairs an old clock", "follows a map", "waits for the first snow", "keeps a promise")
PLACES = ("a small village", "a big city", "an old castle", "a quiet island", "the desert", "a snowy mountain", "a busy harbor", "a deep forest", "a space station", "a library")
SCIENCE = ("rainbows", "gravity", "photosynthesis", "electricity", "the water cycle", "volcanoes", "earthquakes", "the moon", "tides", "magnets", "the heart", "the brain", "sleep", "dreams", "vaccines",
           "bacteria", "viruses", "the immune system", "evolution", "dinosaurs", "fossils", "black holes", "stars", "the solar system", "seasons", "thunder and lightning", "wind", "clouds", "snow",
           "glaciers", "deserts", "coral reefs", "bees", "ants", "spiders", "whales", "birds", "migration", "hibernation", "plastic", "glass", "steel", "paper", "bread", "cheese", "chocolate",
           "coffee", "tea", "salt", "sugar", "the internet", "computers", "batteries", "solar panels", "wind turbines", "engines", "airplanes", "ships", "trains", "bicycles", "bridges",
           "money", "banks", "taxes", "inflation", "insurance", "elections", "laws", "the Roman Empire", "ancient Egypt", "the Renaissance", "the printing press", "the steam engine", "maps",
           "time zones", "calendars", "music", "painting", "poetry", "theater", "football", "chess", "yoga", "allergies", "vitamins", "protein", "fever", "blood pressure", "climate change", "recycling")
LISTENERS = ("a child", "a beginner", "my grandmother", "a student", "a five year old", "someone who has never heard of it")
TASKS = ("sleep better", "save money", "learn a new language", "cook healthy meals", "stay motivated", "clean the kitchen", "organize a small room", "start a garden", "grow tomatoes", "keep houseplants alive",
         "train a puppy", "take care of a cat", "run a first marathon", "start exercising", "reduce stress", "prepare for a job interview", "write a resume", "give a speech", "make new friends",
         "plan a trip", "pack a suitcase", "travel with children", "save energy at home", "save water", "reduce food waste", "shop for groceries", "read more books", "write a story", "draw better",
         "play the guitar", "learn to swim", "ride a bicycle safely", "drive in the snow", "take good photos", "study for an exam", "remember names", "manage time", "wake up early", "stop procrastinating",
         "work from home", "get along with neighbors", "help a child with homework", "talk to a shy person", "apologize to a friend", "bake bread", "make soup", "brew good coffee", "choose a laptop",
         "protect my passwords", "back up my files", "back up my phone", "fix a flat tire", "remove a stain", "paint a wall", "wash wool", "sharpen a knife", "set a table", "host a dinner party")
OCCASIONS = ("a friend's birthday", "a wedding", "a new job", "a new baby", "a graduation", "moving to a new home", "a get-well card", "a retirement", "a late reply", "a missed meeting", "a broken vase",
             "a lost package", "a day off", "a refund", "a noisy neighbor", "a school absence", "a restaurant reservation", "a job application", "a thank-you for dinner", "an invitation to a picnic")
PEOPLE = ("my boss", "a friend", "my landlord", "a teacher", "my neighbor", "a customer", "my sister", "a colleague", "the city office", "a hotel")
FOODS = ("pancakes", "vegetable soup", "chicken curry", "an omelet", "apple pie", "tomato sauce", "fried rice", "banana bread", "a green salad", "lentil stew", "roast potatoes", "pizza dough", "hummus",
         "oatmeal cookies", "mushroom risotto", "fish tacos", "pumpkin soup", "a fruit smoothie", "beef stew", "spaghetti")
LISTS = ("books for a rainy day", "games for a birthday party", "names for a cat", "names for a dog", "healthy snacks", "quick breakfasts", "gifts for a father", "gifts for a teacher", "hobbies for the winter",
         "things to do on a Sunday", "indoor plants", "questions for a first date", "ideas for a science project", "topics for a short essay", "ways to say thank you", "words that describe the sea",
         "things to pack for camping", "activities for toddlers", "family traditions", "titles for a mystery novel")
COUNTS = ("three", "five", "six", "seven", "ten")


def story(r):
    who, trait, wish, place = r.pick(HEROES), r.pick(TRAITS), r.pick(WISHES), r.pick(PLACES)
    return r.pick((f"Write a short story about {article(trait)} {who} who {wish}.", f"Tell me a story about {article(who)} who {wish}.", f"Write a bedtime story about {article(trait)} {who} in {place}.",
                   f"Write a story that takes place in {place}, about {article(who)} who {wish}.", f"Tell a short story with a happy end about {article(trait)} {who}."))


def explain(r):
    what, who = r.pick(SCIENCE), r.pick(LISTENERS)
    return r.pick((f"Explain {what} to {who}.", f"Explain {what} in simple words.", f"Write a short paragraph about {what}.", f"What should I know about {what}?", f"Tell me {r.pick(COUNTS)} facts about {what}.",
                   f"Why is {what} important?" if not what.endswith("s") else f"Why are {what} important?", f"Write a short introduction to {what} for {who}."))


def tips(r):
    what = r.pick(TASKS)
    return r.pick((f"Give me {r.pick(COUNTS)} tips to {what}.", f"How can I {what}?", f"What is the best way to {what}?", f"Write a short guide on how to {what}.", f"I want to {what}. Where do I begin?",
                   f"Make a weekly plan that helps me to {what}."))


def letter(r):
    what, who = r.pick(OCCASIONS), r.pick(PEOPLE)
    return r.pick((f"Write an email to {who} about {what}.", f"Write a short letter to {who} about {what}.", f"Write a friendly message to {who} about {what}.", f"Help me write a polite note to {who} about {what}."))


def recipe(r):
    what = r.pick(FOODS)
    return r.pick((f"How do I make {what}?", f"Give me a simple recipe for {what}.", f"Write a recipe for {what} for {r.pick(('two', 'four', 'six'))} people.", f"What do I need to make {what}?"))


def listing(r):
    what = r.pick(LISTS)
    return r.pick((f"Give me a list of {r.pick(COUNTS)} {what}.", f"Suggest some {what}.", f"List {r.pick(COUNTS)} {what} and say a sentence about each."))


KINDS = {"story": story, "explain": explain, "tips": tips, "letter": letter, "recipe": recipe, "list": listing}
SHARES = ("story",) * 6 + ("explain",) * 6 + ("tips",) * 4 + ("letter",) * 2 + ("recipe",) * 1 + ("list",) * 1


def prompts(seed, count):
    """`count` different prompts; fewer if the grammar has no more."""
    seen, index = set(), 0
    while len(seen) < count and index < 40 * count + 1000:
        r = Rng(seed, index)
        index += 1
        text = KINDS[r.pick(SHARES)](r).replace("lighthouse-keeper", "lighthouse keeper")
        if text not in seen:
            seen.add(text)
            yield text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=1000)
    a = p.parse_args()
    for text in prompts(a.seed, a.count):
        print(text)


if __name__ == "__main__":
    main()
