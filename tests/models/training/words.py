"""The vocabulary of the synthetic dialogues.

Every ``HELD_OUT_*`` list is kept out of the training data, for `evaluate.py` alone.
"""


def _list(text: str) -> list[str]:
    return [" ".join(word.split()) for word in text.split(",")]


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split(": ", 1) for pair in _list(text))


NAMES = _list(
    """
    Anna, Ben, Clara, David, Emma, Felix, Grace, Henry, Iris, Jack, Karen, Leo, Maria, Nina,
    Oscar, Paul, Quinn, Rosa, Sam, Tom, Uma, Victor, Wendy, Yusuf, Zoe, Alice, Bob, Carol, Eve,
    Mallory, Ali, Fatima, Kenji, Olga, Pedro, Ravi, Sofia, Lars, Ingrid, Mateo, John, Jane,
    Peter, Ada, Alan, Linus, Marie, Hans, Chloe, Omar
    """
)
HELD_OUT_NAMES = _list(
    """
    Ottoline, Barnaby, Xavier, Priscilla, Thaddeus, Gwendolyn, Hiroshi, Anneliese, Bartholomew,
    Yolanda, Desmond, Marguerite, Rupert, Siobhan, Ignacio
    """
)
CAPITALS = _pairs(
    """
    France: Paris, Germany: Berlin, Italy: Rome, Spain: Madrid, Portugal: Lisbon, Austria:
    Vienna, Belgium: Brussels, Netherlands: Amsterdam, Switzerland: Bern, Poland: Warsaw,
    Denmark: Copenhagen, Sweden: Stockholm, Norway: Oslo, Finland: Helsinki, Iceland: Reykjavik,
    Ireland: Dublin, Greece: Athens, Turkey: Ankara, Russia: Moscow, Ukraine: Kyiv, Hungary:
    Budapest, Romania: Bucharest, Bulgaria: Sofia, Croatia: Zagreb, Egypt: Cairo, Morocco:
    Rabat, Kenya: Nairobi, Japan: Tokyo, China: Beijing, India: Delhi, Thailand: Bangkok,
    Canada: Ottawa, Mexico: Mexico City, Brazil: Brasilia, Argentina: Buenos Aires, Chile:
    Santiago, Peru: Lima, Cuba: Havana, Colombia: Bogotá, Australia: Canberra, England: London
    """
)
_OTHER_CITIES = _list(
    """
    London, New York, San Francisco, Chicago, Boston, Hamburg, Munich, Milan, Barcelona, Lyon,
    Osaka, Shanghai, Mumbai, Sydney, Toronto, Los Angeles, Seattle, Porto, Geneva, Zurich,
    Zürich, Köln, São Paulo
    """
)
CITIES = [*CAPITALS.values(), *_OTHER_CITIES]
HELD_OUT_CITIES = _list(
    """
    Ljubljana, Ouagadougou, Valparaiso, Antananarivo, Saskatoon, Edinburgh, Montevideo, Cape
    Town, Novosibirsk, Thessaloniki, Albuquerque, Rotterdam, Kuala Lumpur, Wolverhampton
    """
)
COLOURS = _pairs(
    """
    the sky: blue, grass: green, snow: white, coal: black, a banana: yellow, blood: red, a
    carrot: orange, chocolate: brown, a lemon: yellow, the sun: yellow, a tomato: red, an
    elephant: grey, a flamingo: pink, milk: white, the sea: blue, a leaf: green
    """
)
DAYS = _list(
    """
    Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
    """
)
LEGS = _pairs(
    """
    spider: eight, dog: four, cat: four, bird: two, insect: six, fish: no, snake: no, horse:
    four
    """
)
OPPOSITES = _pairs(
    """
    hot: cold, big: small, up: down, left: right, day: night, fast: slow, good: bad, open:
    closed, rich: poor, old: new, black: white
    """
)
# Questions, and their answer.
FACTS = [
    (["How many days are in a week?", "How many days does a week have?"], "A week has seven days."),
    (["How many months are in a year?"], "A year has twelve months."),
    (["How many days are in a year?"], "A year has 365 days."),
    (["How many hours are in a day?"], "A day has 24 hours."),
    (
        ["What is the largest planet?", "Which planet is the largest?"],
        "The largest planet is Jupiter.",
    ),
    (
        ["What is the largest ocean?", "Which ocean is the largest?"],
        "The largest ocean is the Pacific.",
    ),
    (["What is the highest mountain?"], "The highest mountain is Mount Everest."),
    (["Who wrote Hamlet?", "Who wrote Romeo and Juliet?"], "William Shakespeare wrote it."),
    (
        ["At what temperature does water boil?", "When does water boil?"],
        "Water boils at 100 degrees Celsius.",
    ),
    (["At what temperature does water freeze?"], "Water freezes at 0 degrees Celsius."),
    (["What is the meaning of life?"], "The meaning of life is 42."),
    (["Is the earth flat?", "Is the earth round?"], "The earth is round."),
]
NOUNS = _list(
    """
    price, stock price, population, exchange rate, recipe, timetable, phone number, email
    address, birthday, height, weight, address, currency, language, flag, area code, opening
    hours, menu, rating, score, temperature, humidity, forecast, air quality, distance, route,
    balance, invoice, order status, delivery date, version, license, owner, author, publisher,
    summary, definition, synonym, translation, salary, job title, calendar, schedule, departure
    time, arrival time, platform, gate, seat, room, status, tax rate, interest rate, market
    value, horoscope, sunrise, sunset, tide, news, traffic, details, profile, logs, metrics,
    documentation, content, size, history
    """
)
HELD_OUT_NOUNS = _list(
    """
    postal code, mayor, elevation, nickname, water level, ticket price, warranty, inventory,
    speed limit, pollen count, founding year, moon phase, shipping cost, blood type
    """
)
KINDS = _list(
    """
    city, country, person, company, user, product, location, place, town, item, name, id, key,
    query, customer, book, station, region, symbol, word, ticker, path, url, topic, order,
    account
    """
)
HELD_OUT_KINDS = _list(
    """
    municipality, employee, vehicle, target, district, subject
    """
)
VERBS = _list(
    """
    open, close, delete, start, stop, create, send, show, print, read, buy, book, cancel, play,
    pause, rename, share, archive, restart, install, add, update, turn on, turn off, run, write,
    move, check
    """
)
HELD_OUT_VERBS = _list(
    """
    upload, publish, approve, reset, mute, export
    """
)
THINGS = _list(
    """
    file, door, song, server, ticket, email, photo, report, job, lamp, window, folder, account,
    document, device, movie, task, project, order, event, reminder, note, alarm, timer, issue,
    user, light, command
    """
)
HELD_OUT_THINGS = _list(
    """
    playlist, container, garage, notebook, sensor, branch
    """
)
FIELDS = _list(
    """
    title, priority, amount, date, color, size, count, name, id, status, level, code, quantity,
    category, label, owner, city, note, type, mode, speed, volume, due_date, user_id,
    start_time, total_price, first_name, language, rating, author, year, description
    """
)
WORDS = _list(
    """
    apple, river, mountain, green, quick, lazy, fox, dog, house, blue, silver, paper, stone,
    light, dark, water, fire, winter, summer, music, garden, train, bridge, tiger, seven,
    letter, happy, quiet, yellow, ocean, forest, small, big, old, new, red, cat, bird, moon,
    star, tea, coffee, bread, table, chair, road, city, morning, night, dream, story, number,
    test, system, network, model, gateway, token, stream, the, a, of, and, is, in, to, with,
    for, on, my, your, we, they, it, runs, jumps, likes, sees, hello, world, good, fine, great,
    very, much, please, thank, hidden, open, rain, sea, ship, love, work, play, people, time,
    year, day, way, thing, man, woman, child, life, hand, part, place, week, case, point,
    company, group, problem, fact, printer, broken, meeting, project, lunch, tomorrow, report,
    money, phone, computer, language, python, code, data, server
    """
)
FUNCTION_WORDS = _list(
    """
    the, a, of, and, is, in, to, for, on, it, my, your, you, with
    """
)
TOPICS = _list(
    """
    history, love, the sea, quantum physics, the Roman empire, cooking, football, democracy,
    machine learning, dinosaurs, my cat, the stock market, jazz, climate change, black holes,
    the internet, philosophy, art, a long journey, spring, my grandmother, space travel, a
    dragon, politics, chess, databases, Python, Rust, JavaScript, recursion, the weather,
    poetry, my homework, a robot, the moon, bees, chemistry, economics, religion, psychology,
    gardening, old trains, pasta, the brain, music theory
    """
)
CONDITIONS = _list(
    """
    sunny, cloudy, rainy, windy, snowy, foggy, clear, stormy, light rain, partly cloudy
    """
)
UNITS = [
    ("unit", ["celsius", "fahrenheit"]),
    ("units", ["celsius", "fahrenheit"]),
    ("units", ["metric", "imperial"]),
    ("unit", ["C", "F"]),
    ("format", ["short", "long"]),
    ("language", ["en", "de", "fr"]),
    ("mode", ["fast", "full"]),
]
