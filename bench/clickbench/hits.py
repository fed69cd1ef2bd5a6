"""Generates rows with the distributions of ClickBench's table `hits`, in SQL. A row depends on its number and the seed only.

The columns that the 43 queries use resemble the real data: rows are ordered by site (CounterID) and day, few sites have
most rows, most rows have no search phrase and no advertisement, and a person's attributes (region, device, …) follow from
the UserID. The constants in the queries (CounterID 62, the hashes, the user) match rows. All other columns are mostly zero
or empty.
"""

USER, URL_HASH, REFERER_HASH = 435090932899640449, 2868770270353813622, 3594120000172545465

WORDS = (
    "купить скачать бесплатно смотреть онлайн фильм музыка авто продажа москва погода новости работа цены отзывы форум "
    "магазин детский рецепты игры карта расписание ремонт квартиры телефон интернет видео фото книга школа турция отдых "
    "запчасти toyota honda samsung nokia windows driver torrent forum news auto mail video girls hotel price review shop "
    "camera laptop recipe guide weather maps radio movie sport"
).split()
MODELS = "iPad iPhone GT-I9300 GT-P5100 N8-00 LT26i Nexus7 U8500 GT-S5830 Lumia720".split()


def _list(words):
    return "ARRAY['" + "','".join(words) + "']"


def _words(count, seed):
    """SQL for `count` words chosen by the number `seed`."""
    return " || ' ' || ".join(f"({_list(WORDS)})[1 + pg_temp.whole({seed}, {i}, {len(WORDS)})]" for i in range(count))


FUNCTIONS = """
CREATE FUNCTION pg_temp.share(n bigint, salt bigint) RETURNS float8 LANGUAGE sql IMMUTABLE
  AS 'SELECT (hashint8extended(n, salt) & 1048575)::float8 / 1048576';
CREATE FUNCTION pg_temp.whole(n bigint, salt bigint, below int) RETURNS int LANGUAGE sql IMMUTABLE
  AS 'SELECT floor((hashint8extended(n, salt) & 1048575)::float8 / 1048576 * below)::int';
"""

# Each LATERAL level computes from the levels before: site and month, then the person, then the page. OFFSET 0 keeps the
# planner from inlining the expressions of one level into the next, which would evaluate them many times.
ROWS = f"""
FROM generate_series({{first}}::bigint, {{last}}::bigint) g
CROSS JOIN LATERAL (SELECT (g - 1)::float8 / {{rows}} AS x OFFSET 0) a
CROSS JOIN LATERAL (SELECT
  CASE WHEN x < .02 THEN 1 + floor(x / .02 * 61) WHEN x < .05 THEN 62 WHEN x < .17 THEN 3922 WHEN x < .28 THEN 199550
       ELSE 200000 + floor(6000 * ((x - .28) / .72) * ((x - .28) / .72)) END::int AS counter,
  CASE WHEN x < .02 THEN x / .02 * 61 WHEN x < .05 THEN (x - .02) / .03 WHEN x < .17 THEN (x - .05) / .12
       WHEN x < .28 THEN (x - .17) / .11 ELSE (x - .28) / .72 * 600 END AS month,
  {{rows}} * .25 * CASE WHEN x < .02 THEN .0003 WHEN x < .05 THEN .03 WHEN x < .28 THEN .11 ELSE .0003 END AS pages OFFSET 0) b
CROSS JOIN LATERAL (SELECT
  floor(31 * (month - floor(month)))::int AS day,
  floor({{rows}} * .18 * pg_temp.share(g, 1) * pg_temp.share(g, 1))::bigint AS person OFFSET 0) c
CROSS JOIN LATERAL (SELECT
  CASE WHEN person = 3 THEN {USER} ELSE hashint8extended(person, {{seed}}) & 9223372036854775807 END AS userid,
  timestamp '2013-07-01' + day * interval '1 day' + pg_temp.whole(g, 2, 86400) * interval '1 second' AS at,
  pg_temp.share(person, 3) < .06 AS mobile,
  floor(pages * pg_temp.share(g, 4) * pg_temp.share(g, 4))::bigint * 210011 + counter AS page,
  pg_temp.share(g, 5) AS chance OFFSET 0) d
CROSS JOIN LATERAL (SELECT
  CASE WHEN pg_temp.share(g, 6) < .13 THEN floor({{rows}} * .06 * pg_temp.share(g, 7) * pg_temp.share(g, 7) * pg_temp.share(g, 7))::bigint END AS phrase,
  CASE WHEN chance < .001 THEN 'http://www.google.com/search?q=' || page
       WHEN page % 50 = 0 THEN ''
       ELSE 'http://site' || counter || '.ru/' || ({_list(WORDS[33:])})[1 + pg_temp.whole(page, 8, {len(WORDS) - 33})]
            || '/' || substr(md5(page::text), 1, 12) || '/' || page || CASE WHEN page % 3 = 0 THEN '.html?id=' || pg_temp.whole(g, 9, 20) ELSE '/index.php' END END AS url,
  {_words(6, "page")} || CASE WHEN page % 400 = 7 THEN ' - Google' ELSE ' | site' || counter END AS title OFFSET 0) e
CROSS JOIN LATERAL (SELECT
  CASE WHEN chance < .3 THEN '' WHEN chance < .5 THEN 'http://yandex.ru/search?text=' || coalesce(phrase, page)
       WHEN chance < .6 THEN 'https://www.google.ru/url?q=' || page ELSE url END AS referer OFFSET 0) f
"""

COLUMNS = {
    "watchid": "hashint8extended(g, {seed} + 1) & 9223372036854775807",
    "javaenable": "(person % 10 < 7)::int",
    "title": "title",
    "goodevent": "1",
    "eventtime": "at",
    "eventdate": "at::date",
    "counterid": "counter",
    "clientip": "hashint8(person / 2)",
    "regionid": "CASE WHEN person % 4 = 0 THEN 229 ELSE floor(9000 * pg_temp.share(person, 10) * pg_temp.share(person, 10) * pg_temp.share(person, 10)) END",
    "userid": "userid",
    "os": "CASE WHEN mobile THEN 100 + person % 5 ELSE person % 4 * 14 END",
    "useragent": "person % 80",
    "url": "url",
    "referer": "referer",
    "isrefresh": "(pg_temp.share(g, 11) < .12)::int",
    "referercategoryid": "pg_temp.whole(page, 12, 20) * 500",
    "refererregionid": "pg_temp.whole(page, 13, 300)",
    "urlcategoryid": "pg_temp.whole(counter, 14, 20) * 500",
    "urlregionid": "pg_temp.whole(counter, 15, 300)",
    "resolutionwidth": "(ARRAY[1368, 1638, 1996, 1087, 1750, 1594, 0, 391])[1 + pg_temp.whole(person, 16, 8)]",
    "resolutionheight": "(ARRAY[554, 783, 952, 658, 1216, 879, 0, 521])[1 + pg_temp.whole(person, 16, 8)]",
    "resolutiondepth": "CASE WHEN mobile THEN 37 ELSE 23 END",
    "flashmajor": "CASE WHEN mobile THEN 0 ELSE 15 END",
    "flashminor": "person % 9",
    "flashminor2": "CASE WHEN person % 3 = 0 THEN '800.94' ELSE '' END",
    "useragentmajor": "person % 30",
    "useragentminor": "CASE WHEN person % 2 = 0 THEN 'D' || chr(65 + (person % 26)::int) ELSE '' END",
    "cookieenable": "1",
    "javascriptenable": "(person % 50 <> 0)::int",
    "ismobile": "mobile::int",
    "mobilephone": "CASE WHEN mobile THEN 1 + person % 90 ELSE 0 END",
    "mobilephonemodel": f"CASE WHEN mobile THEN ({_list(MODELS)})[1 + pg_temp.whole(person, 17, {len(MODELS)})] ELSE '' END",
    "ipnetworkid": "hashint8(person / 50) & 4194303",
    "traficsourceid": "CASE WHEN phrase IS NOT NULL THEN 2 WHEN chance < .3 THEN 0 WHEN chance < .4 THEN -1 WHEN chance < .45 THEN 6 ELSE 1 END",
    "searchengineid": "CASE WHEN phrase IS NULL THEN 0 ELSE (ARRAY[2, 2, 2, 3, 3, 1, 13, 45])[1 + pg_temp.whole(g, 18, 8)] END",
    "searchphrase": f"CASE WHEN phrase IS NULL THEN '' ELSE {_words(3, 'phrase')} END",
    "advengineid": "CASE WHEN pg_temp.share(g, 19) < .006 THEN (ARRAY[2, 2, 2, 27, 13, 45, 44, 3])[1 + pg_temp.whole(g, 20, 8)] ELSE 0 END",
    "windowclientwidth": "300 + pg_temp.whole(g, 21, 1700)",
    "windowclientheight": "200 + pg_temp.whole(g, 22, 900)",
    "clienttimezone": "CASE WHEN person % 4 = 0 THEN 240 ELSE 135 END",
    "clienteventtime": "at + pg_temp.whole(person, 23, 600) * interval '1 second'",
    "silverlightversion1": "CASE WHEN person % 3 = 0 THEN 4 ELSE 0 END",
    "silverlightversion3": "CASE WHEN person % 3 = 0 THEN 52034 ELSE 0 END",
    "pagecharset": "CASE WHEN counter % 3 = 0 THEN 'utf-8' ELSE 'windows' END",
    "codeversion": "CASE WHEN chance < .9 THEN 1601 ELSE 1514 END",
    "islink": "(pg_temp.share(g, 24) < .25)::int",
    "isdownload": "(pg_temp.share(g, 25) < .01)::int",
    "isnotbounce": "(chance < .2)::int",
    "funiqid": "CASE WHEN person % 3 = 0 THEN hashint8extended(person, {seed} + 2) & 9223372036854775807 ELSE 0 END",
    "originalurl": "CASE WHEN page % 20 = 0 THEN url ELSE '' END",
    "hid": "hashint8(g) & 1073741823",
    "dontcounthits": "(pg_temp.share(g, 26) < .07)::int",
    "hitcolor": "CASE WHEN chance < .1 THEN 'D' ELSE '5' END",
    "localeventtime": "at - interval '2 hours'",
    "age": "person % 56",
    "sex": "person % 3",
    "income": "person % 4",
    "interests": "pg_temp.whole(person, 27, 16000)",
    "robotness": "CASE WHEN person % 30 = 0 THEN 9 ELSE 0 END",
    "remoteip": "hashint8(person / 2 + 7)",
    "windowname": "CASE WHEN chance < .3 THEN hashint8(g + 5) ELSE -1 END",
    "openername": "CASE WHEN chance > .9 THEN hashint8(g + 6) ELSE -1 END",
    "historylength": "CASE WHEN chance < .5 THEN 1 + pg_temp.whole(g, 28, 40) ELSE -1 END",
    "browserlanguage": "CASE WHEN person % 8 = 0 THEN 'en' ELSE 'S0' END",
    "browsercountry": "'h1'",
    "sendtiming": "pg_temp.whole(g, 29, 3) * pg_temp.whole(g, 30, 2000)",
    "dnstiming": "pg_temp.whole(g, 31, 2) * pg_temp.whole(g, 32, 300)",
    "connecttiming": "pg_temp.whole(g, 33, 2) * pg_temp.whole(g, 34, 400)",
    "responsestarttiming": "pg_temp.whole(g, 35, 1500)",
    "responseendtiming": "pg_temp.whole(g, 36, 3000)",
    "fetchtiming": "pg_temp.whole(g, 37, 2500)",
    "paramcurrency": "'NH' || chr(28)",
    "refererhash": f"CASE WHEN counter = 62 AND page % 7 = 0 THEN {REFERER_HASH} ELSE hashtextextended(referer, {{seed}}) END",
    "urlhash": f"CASE WHEN counter = 62 AND page % 2 = 0 THEN {URL_HASH} ELSE hashtextextended(url, {{seed}}) END",
    "clid": "pg_temp.whole(counter, 38, 2) * pg_temp.whole(g, 39, 5)",
}


def statements(columns, rows, seed, table="hits", batch=250_000):
    """Yields SQL statements that fill a table; `columns` are its names and types, in order."""
    known = set(COLUMNS) - {name for name, _ in columns}
    if known:
        raise ValueError(f"the table has no columns {sorted(known)}")
    selected = []
    for name, kind in columns:
        zero = "''" if kind.startswith(("text", "character")) else "0"
        selected.append(f"({COLUMNS.get(name, zero).format(seed=seed)})::{kind}")
    yield FUNCTIONS
    for first in range(1, rows + 1, batch):
        last = min(first + batch - 1, rows)
        yield f"INSERT INTO {table} SELECT {', '.join(selected)} {ROWS.format(first=first, last=last, rows=rows, seed=seed)}"
