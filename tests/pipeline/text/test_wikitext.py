import random
import re
import time
from itertools import chain

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.text.wikitext.names import NAMES
from clozeworks.pipeline.text.wikitext.passages import GAP, wikitext_to_paragraphs
from clozeworks.pipeline.text.wikitext.repair import (
    LOST_TO_TEMPLATE,
    drop_rare_templates,
    most_costly_templates,
)
from clozeworks.pipeline.text.wikitext.templates import (
    parse_arguments,
    render_template,
    template_name,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def clean(markup: str, language: str = "en") -> str:
    """Return the paragraphs, one a line; the last may be short of a sentence."""
    sentence = "This makes it a passage."
    return (
        "\n".join(wikitext_to_paragraphs(f"{markup} {sentence}", language))
        .replace(sentence, "")
        .strip()
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Ada''' was a ''mathematician''.", "Ada was a mathematician."),
        ("'''''Both''''' and l'''Odissea'' di Omero", "Both and l'Odissea di Omero"),
        ("'''A''' (plural ''As'')", "A (plural As)"),
        ("'''Omero''' scrisse l'''Odissea''.", "Omero scrisse l'Odissea."),
        ("'''Bold''' and '''unclosed", "Bold and unclosed"),
        ("A [[town]] in [[France|the south]] and [[mill]]s.", "A town in the south and mills."),
        (
            "See [[:Category:Towns]], [[#History]], [[:fr:Ville|ville]].",
            f"See {GAP}, History, ville.",
        ),
        ("The {{uc:[[nato]]}} summit, {{lcfirst:}}", "The NATO summit,"),
        ("[http://x.org The site] and [//y.org] here.", "The site and here."),
        ("One.<ref>{{cite web|a}}</ref> Two<ref name=x /> words.", "One. Two words."),
        ("A<!-- [[x --> B <nowiki>C</nowiki><nowiki/>s", "A B Cs"),
        ("Fish &amp; chips&nbsp;&ndash; good", "Fish & chips – good"),
        ("5&nbsp;km<sup>2</sup> of H<sub>2</sub>O", "5 km² of H2O"),
        ("__NOTOC__ Text here.", "Text here."),
        ("One line\nand its second.\n\nNext.", "One line and its second.\nNext."),
        ("One<br/>two.<p>Three.</p>", "One two.\nThree."),
        ("North.<br> It flows.<blockquote> It was.</blockquote>", "North. It flows.\nIt was."),
        ("<p>\t The river.</p>\n</div> It flows.", "The river.\nIt flows."),
        (
            'Up.\n\n<span id="x"></span> The river.\n<ref>a</ref> It <b>flows</b> on.',
            "Up.\nThe river. It flows on.",
        ),
    ],
)
def test_renders_inline_markup(markup: str, text: str) -> None:
    assert clean(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("-{zh-hans:计算机;zh-hant:電腦}- 好", "计算机 好"),
        ("《-{Re:從零開始的異世界生活}-》 好", "《Re:從零開始的異世界生活》 好"),
        ("-{R|電腦}- 好-{zh;zh-hans|x}-", "電腦 好x"),
        ("-{A|zh-cn:软件; zh-tw:軟體;}- 好 -{sr-ec:текст;sr-el:tekst}-", "软件 好 текст"),
        ("好-{H|zh-hans:软件;zh-hant:軟體}--{T|zh-hans:软件}--{-|a}-（-{H|a}-）吧", "好吧"),
        ("好 -{D|zh-hans:软件;zh-hant:軟體}- 吧", f"好 {GAP} 吧"),
    ],
)
def test_renders_variants_of_a_language(markup: str, text: str) -> None:
    assert clean(markup, "zh") == text


def test_braces_are_text_in_wikis_without_variants() -> None:
    assert clean("The acid 2-{[3-x]amino}-ethanol is.") == "The acid 2-{[3-x]amino}-ethanol is."


@pytest.mark.parametrize(
    "text",
    [
        "Begin by including &lt;iostream&gt; here.",
        "A list declared as List&lt;String&gt; holds, and x&lt;y and y&gt;z.",
        "Write &lt;b&gt; for bold and &lt;/b&gt; to end it.",
    ],
)
def test_escaped_angle_brackets_are_text(text: str) -> None:
    assert clean(text) == text.replace("&lt;", "<").replace("&gt;", ">")


def test_only_the_tags_of_mediawiki_are_tags() -> None:
    assert clean("The novel <Alice> and a List<T> were <b>seen</b>.") == (
        "The novel <Alice> and a List<T> were seen."
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("It flew 10{{sup|6}} km and m{{hoch|2}}.", "It flew 10⁶ km and m²."),
        ("The number 2<sup>32582657</sup> − 1", "The number 2³²⁵⁸²⁶⁵⁷ − 1"),
        ("10<sup>−10.5</sup> and 10<sup>''n''</sup>", "10^−10.5 and 10ⁿ"),
        ("10<sup>{{mvar|n}}</sup> and 2<sup>n</sup>", "10^n and 2ⁿ"),
        ("the 4<sup>th</sup> and M<sup>me</sup> and 2<sup>e</sup>", "the 4th and Mme and 2e"),
        ("5{{frac|1|2}} and 3{{fraction|1|8}} inches", "5 1/2 and 3 1/8 inches"),
        ("about {{frac|1|2}} and {{frac|3|1|2}} inches", "about 1/2 and 3 1/2 inches"),
        ("Es sind 3{{bruch|1|2}} Zoll", "Es sind 3 1/2 Zoll"),
        ("Es sind 3{{zahl|1|2}} Zoll", f"Es sind 3{GAP} Zoll"),
        ("It rose by ±{{unknown|2}} units", f"It rose by ±{GAP} units"),
    ],
)
def test_raised_and_mixed_numbers_stay_what_they_are(markup: str, text: str) -> None:
    assert clean(markup) == text


@pytest.mark.parametrize(
    "text",
    [
        "!Kung is a language of Namibia.",
        "|x| is the absolute value of a number.",
    ],
)
def test_a_first_character_does_not_cost_a_paragraph(text: str) -> None:
    assert wikitext_to_paragraphs(f"One is here.\n\n{text}") == ["One is here.", text]


def test_a_label_that_begins_with_a_mark_is_no_list() -> None:
    markup = "[[NSYNC|*NSYNC]] is a band.\n* [[a|b]]\n[[x|#1]] is an album."
    assert clean(markup) == "*NSYNC is a band.\n#1 is an album."


OWN_TEMPLATES = """
[templates]
"*" = [{ shows = ["{1} of {2}", "{1}"], names = ["Odd"] }, { shows = [""], names = ["box"] }]
en = [{ rule = "convert", names = ["metres"] }]
"""


def test_a_user_adds_templates() -> None:
    markup = "The {{odd|town|old}} is {{metres|5|km}} {{box|a|b}} away from {{HMS|Victory}}."
    assert wikitext_to_paragraphs(markup, templates=OWN_TEMPLATES) == [
        "The town of old is 5 km away from HMS Victory."
    ]
    assert GAP in wikitext_to_paragraphs(markup, "de", templates=OWN_TEMPLATES)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[templates", "is not a TOML file"),
        ("[other]", "is not a TOML file"),
        ('[templates]\nen = [{ rule = "x", names = ["y"] }]', "names the rule x"),
    ],
)
def test_wrong_templates_of_a_user_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        wikitext_to_paragraphs("Text.", templates=text)


def test_unknown_templates_are_listed_with_the_words_that_they_cost() -> None:
    markup = (
        "One is here. The {{odd|a}} town is [[old]] now. It was {{odd|b}} big.\n"
        "* Item {{listed|a}} here.\nTwo is here.{{footnote}} Three.\n"
    )
    counters = Counters()
    assert wikitext_to_paragraphs(markup, counters=counters)
    costs = {
        name.removeprefix(LOST_TO_TEMPLATE): counters.counts[name]
        for name in most_costly_templates(counters.counts)
    }
    assert costs == {"odd": 8}


def test_a_record_holds_only_the_most_costly_templates() -> None:
    counters = Counters()
    for number in range(500):
        counters.count(f"{LOST_TO_TEMPLATE}{number}", number)
    drop_rare_templates(counters.counts)
    counts = counters.counts
    assert len(counts) == 200 and counts[f"{LOST_TO_TEMPLATE}499"] == 499


def test_the_name_of_the_page() -> None:
    markup = "'''{{PAGENAME}}''' is near {{SEITENNAME}}."
    assert wikitext_to_paragraphs(markup, title="Ulm") == ["Ulm is near Ulm."]
    assert wikitext_to_paragraphs(markup) == [f"{GAP} is near {GAP}."]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("l{{'}}''Odyssée'' et l<nowiki>'</nowiki>''Iliade''.", "l'Odyssée et l'Iliade."),
        ("The sign {{!}} and <nowiki>[[x]]</nowiki> are.", "The sign | and [[x]] are."),
        ("The Black&section and 3&times as many.", "The Black&section and 3&times as many."),
        ("[https://x.org The [old] report] says.", "The [old] report says."),
        (
            "The method __init__ and __FILE__ __NOTOC__ run.",
            "The method __init__ and __FILE__ run.",
        ),
        ("Wide<ref>a <ref>b</ref> c</ref> and<ref>a <ref/> c</ref> deep.", "Wide and deep."),
        ("Wide<ref>a <references/> c</ref> and deep.", "Wide and deep."),
        ('The <span style="display:none">11</span>eleven.', "The eleven."),
        ("It was <s>red</s> blue.", f"It was {GAP} blue."),
        ("The <code>print(1)</code> and <chem>H2O</chem> are.", "The print(1) and H2O are."),
        ('The <syntaxhighlight lang="c" inline>a[0]</syntaxhighlight> is.', "The a[0] is."),
        ("It lies at <maplink zoom=1 />, far.", f"It lies at {GAP}, far."),
        ("See [[a|b|c]], [[Lista d''e]].", "See b|c, Lista d''e."),
        ("The site [[http://x.org the site]] was.", "The site [the site] was."),
        ("The ''[[A (film)|''Alien]] was and ''''''foo'' too.", "The Alien was and 'foo too."),
        ("It <nowiki>&lt;br&gt;</nowiki> and &#x0000000074; are.", "It <br> and t are."),
        ('The rule<ref name="[#] <b>">See it.</ref> was.', "The rule was."),
        ("It has [http://x.org/a.htm''The Death'' (1901)] too.", "It has The Death (1901) too."),
        ("Foo <pages index=x from=1 /><pagelist/>is.", "Foo is."),
        ("Foo<noinclude>zar</noinclude><includeonly>bar</includeonly> is.", "Foozar is."),
        ("Up.\n\nA line with a <div>box</div> in it is.", f"Up.\n{GAP} in it is."),
        ("It {{sic|hid|den}}, {{sqrt|2|3}}.", "It hidden [sic], 3√2."),
        ("On {{Birth date|1993|january|14|df=yes}}.", "On 14 January 1993."),
        ("On {{start date|1993|02|24|08|30}}.", "On 08:30, February 24, 1993."),
        ("The [[Media:A.ogg|sound]] and [[:File:A.png|map]] are.", "The sound and map are."),
        ("He said <q>yes</q> and left.", 'He said "yes" and left.'),
        ("It was. {{quote|It is cold.}} He left.", "It was.\nIt is cold.\nHe left."),
        ("{{spaces|4}}It is here.", "It is here."),
    ],
)
def test_characters_are_shown_as_a_reader_sees_them(markup: str, text: str) -> None:
    assert clean(markup) == text


def test_a_footnote_that_is_never_closed_does_not_swallow_the_next_paragraph() -> None:
    markup = "One<ref>a is here.\n\nTwo<ref>b</ref> is here.\n\nThree</ref> is here."
    assert clean(markup) == "Onea is here.\nTwo is here.\nThree is here."


@pytest.mark.parametrize(
    "broken",
    [
        "[[File:A.jpg|thumb|A [[town]] by the [[river|x]] is.",
        "{{Infobox town|name=Ulm|pop={{formatnum:5000}|area=3}}",
        "{{Infobox town\n|name=Ulm\n}",
    ],
)
def test_a_box_or_picture_that_lost_a_bracket_costs_its_line(broken: str) -> None:
    text = "'''Ulm''' is {{convert|5|km}} from [[x|y]]."
    assert clean(f"{broken}\n{text}") == "Ulm is 5 km from y."


@pytest.mark.parametrize(
    ("language", "markup", "text"),
    [
        ("en", "told by {{harvtxt|Smith|2004|p=12}} in", "told by Smith (2004, p. 12) in"),
        ("en", "by {{harvtxt|Smith|Jones|2004}} in", "by Smith & Jones (2004) in"),
        ("en", "described by {{cite Q|Q12345}} in", f"described by {GAP} in"),
        ("en", "is pronounced {{IPAc-en|x}} in town", f"is pronounced {GAP} in town"),
        ("en", "{{SS|Normandie||2}} and {{ship||Titanic}}", "Normandie and Titanic"),
        ("en", "{{ship|HMS|Victory|1765}} or {{USS|Kidd|DD-661|6}}",
         "HMS Victory (1765) or Kidd (DD-661)"),
        ("en", "is C{{music|#}} and B{{music|flat}}", "is C♯ and B♭"),
        ("en", "to {{flagcountry|ITA}}, {{flag|Peru}}", "to Italy, Peru"),
        ("en", "is {{#ifexpr: 3 > 2 | deep | low }}, {{#if: | x | y }}", "is deep, y"),
        ("en", "has {{#expr: 3 * 4 }} or {{#expr: 1 / 0}} isles", f"has 12 or {GAP} isles"),
        ("en", "about {{percentage|1|8}}, {{percentage|1|8|1}}", "about 13%, 12.5%"),
        ("en", "means {{gloss|sea}} and {{sortname|John|Smith}}", "means 'sea' and John Smith"),
        ("en", "lost {{decrease}} 12 at 35{{°C}}", "lost 12 at 35°C"),
        ("de", "bei {{Coordinate|text=Ulm|NS=1|EW=1}} in {{Coordinate|text=DMS}}.", "bei Ulm in."),
        ("de", "aus {{BRA|#}} Brasilien und {{FRA}} kam", "aus Brasilien und Frankreich kam"),
        ("fr", "Le {{4e|régiment}} en {{av JC|52}} à {{tmp|35|°C}}",
         "Le 4e régiment en 52 av. J.-C. à 35 °C"),
        ("fr", "Le {{1er janvier}} 2025", "Le 1er janvier 2025"),
        ("es", "El siglo {{siglo|V|a|}} fue", "El siglo V a. C. fue"),
        ("pl", "Miasto ({{j|de|Neustadt}})", "Miasto (niem. Neustadt)"),
        ("ru", "в {{s|XIV|век}}е и {{iw|Луна||de|Der Mond}}", "в XIV веке и Луна"),
        ("ru", "из {{Флаг Франции}} Франции, {{ударение|о|4}} ", f"из Франции, {GAP}"),
        ("ja", "{{FRA}}の選手。", "フランスの選手。"),
    ],
)  # fmt: skip
def test_newer_templates(language: str, markup: str, text: str) -> None:
    assert clean(markup, language) == text


@pytest.mark.parametrize(
    ("language", "markup", "text"),
    [
        # names of languages
        ("en", "The {{langx|ru|Лев|translit=Lev|lit=lion}}",
         "The Russian: Лев, romanized: Lev, lit. 'lion'"),
        ("en", "{{lang-la|a|label=none}}, {{langx|mi|b|label=Old}}", "a, Old: b"),
        ("en", "A {{zh|s=中国|p=Zhōngguó}} is", "A simplified Chinese: 中国; pinyin: Zhōngguó is"),
        ("en", "A {{zh|s=中国|labels=no}} is", f"A {GAP} is"),
        ("de", "{{csS|Praha}}, {{zh|c=北京|p=Běijīng}}",
         "tschechisch Praha, chinesisch 北京, Pinyin Běijīng"),
        ("fr", "Le {{lang-en|Act}} est", "Le en anglais : Act est"),
        ("pt", "O {{langx|en|Act}} é", "O em inglês: Act é"),
        ("ru", "{{lang-en|Act}}, {{lang-en2|Bill}}", "англ. Act, Bill"),
        ("cs", "To {{vjazyce|en}} ''Act'' je", "To anglicky Act je"),
        ("fi", "Se {{k-en|Act}} on", "Se engl. Act on"),
        ("ja", "彼は{{lang-en|Act}}（{{lang-fr-short|Acte}}）と", "彼は英語: Act（仏: Acte）と"),
        ("fa", "شرکت {{به انگلیسی|Act}} در", "شرکت به انگلیسی: Act در"),
        # countries
        ("en", "{{URS}} and {{fb|FRA}}, {{ESP}}", "Soviet Union and France, Spain"),
        ("es", "De {{ESP}} y {{selb|Italia}}", "De España y Italia"),
        ("fr", "De {{France}} et {{États-Unis}}", "De France et États-Unis"),
        ("ru", "Из {{USA}} и {{Россия}}", "Из США и Россия"),
        ("de", "aus {{DE-BY}} und {{AUT}} nach {{ITA|#}} Italien",
         "aus Bayern und Österreich nach Italien"),
        # numbers, units, dates
        ("en", "{{val|9.8|ul=m/s2}}, {{val|6|e=23|u=mol-1}}", "9.8 m/s², 6 × 10^23 mol⁻¹"),
        ("en", "{{convert|3|m3/s}}, {{10^|6}}, {{nts|12345}}", "3 m³/s, 10⁶, 12,345"),
        ("en", "{{CAD|5000}}, {{KRW|5000}}, {{US$|5|1990}}", f"CA$5,000, ₩5,000, {GAP}"),
        ("en", "{{as of|2019|since=y}}, {{as of|2020|lc=y|post=,}}", "Since 2019, as of 2020,"),
        ("en", "{{OldStyleDate|3 March|1703|20 February}}", "3 March [O.S. 20 February] 1703"),
        ("es", "{{formatnum:1234}} y {{formatnum:12345}}", "1234 y 12.345"),
        ("fa", "{{formatnum:12345}} نفر", "۱۲٬۳۴۵ نفر"),
        ("ru", "{{formatnum:1.5}} и {{дата|1.2.2003}}", "1,5 и 1 февраля 2003"),
        ("fr", "Le {{date|1|mai|1900}} à {{heure|14|30}}", "Le 1er mai 1900 à 14 h 30"),
        ("fr", "Au {{s mini-|xix|e}}, le {{2d|régiment}}", "Au xixe siècle, le 2d régiment"),
        ("de", "auf {{Höhe|3798|AT|link=1}}, {{Bruch|3|4}}", "auf 3798 m ü. A., 3/4"),
        ("pt", "em {{AC|44}} e {{PBPE|trem|comboio}}",
         "em 44 a.C. e trem (português brasileiro) ou comboio (português europeu)"),
        ("en", "{{date|2010-05-03|mdy}}, {{ordinal|12}}, {{nth|22}}", "May 3, 2010, 12th, 22nd"),
        ("en", "{{val|p=~|5|u=km}}, {{val|5|+4|-3}}", f"~5 km, {GAP}"),
        # ships, keys, signs
        ("en", "{{USS|Kidd|DD-661|3}}, a {{sclass|Fletcher|destroyer}}",
         "USS Kidd, a Fletcher-class destroyer"),
        ("en", "A {{sclass|Iowa|battleship|3}} is", f"A {GAP} is"),
        ("en", "Press {{keypress|Ctrl|C}} in E{{flat}}", "Press Ctrl+C in E♭"),
        ("en", "The {{linktext|山|口}} of {{bibleverse||John|3:16|NIV}}", "The 山口 of John 3:16"),
        ("en", "{{nihongo|Ran|乱||war}} or {{nihongo3|dance|民踊|min'yō}}",
         "Ran (乱, war) or min'yō (民踊, dance)"),
        # links to other wikis, quotations
        ("uk", "Учень {{нп|Джон|Сміт|en|John}} був", "Учень Сміт був"),
        ("ru", "{{нп4|Луна|Луны|en|Moon}}, {{Не переведено|надо=Джон|текст=Джона}}", "Луны, Джона"),
        ("zh", "畫家{{link-en|史密斯|Smith|老史密斯}}在", "畫家老史密斯在"),
        ("pl", "Był {{link-interwiki|Jan (malarz)|Q=Q1|tekst=Jan}} tam", "Był Jan tam"),
        ("ro", "Era {{ill-wd|Q1||Ion}} acolo", "Era Ion acolo"),
        ("ar", "الرسام {{وصلة إنترويكي|تر=Otto|لغ=de|عر=أوتو}} هنا", "الرسام أوتو هنا"),
        ("de", 'Von {{"|neuen Zeiten}} sprach', "Von „neuen Zeiten“ sprach"),
        ("fr", "Il dit {{citation étrangère|en|Yes}} et", "Il dit « Yes » et"),
        # notes
        ("pl", "Utwór{{u|Nie.}} jest{{kto?}} znany", "Utwór jest znany"),
        ("he", "העיר{{הערה|מפקד.}} נוסדה", "העיר נוסדה"),
        ("nb", "Det{{trenger referanse}} er {{språk|en|town}}", "Det er town"),
        # functions
        ("en", "{{#switch:a|a|b=x|c=y|z}}, {{#switch: q | a=x | #default = d }}", "x, d"),
        ("en", "{{#expr: 1990 + 2 * (3 + 12)}} has {{plural:2|town|towns}}", "2020 has towns"),
        ("en", "{{#expr: 10/4 round 0}}, {{#ifeq:a|A|x|y}}, {{#if:x|a=b}}", "3, y, a=b"),
    ],
)  # fmt: skip
def test_templates_as_each_wiki_shows_them(language: str, markup: str, text: str) -> None:
    assert clean(markup, language) == text


@pytest.mark.parametrize(
    ("language", "markup", "text"),
    [
        ("de", "Die Formel H{{unbekannt|2}}O steht.", f"Die Formel H{GAP}O steht."),
        ("en", "In E{{unknown}} minor it is.", f"In E{GAP} minor it is."),
        ("en", "The town{{unknown}} is old.", "The town is old."),
        ("ja", "参加し、{{unknown}}は参加した。", f"参加し、{GAP}は参加した。"),
        ("ja", "{{unknown}}は参加した。", f"{GAP}は参加した。"),
        ("ja", "面積は{{unknown}}km²だ。", f"面積は{GAP}km²だ。"),
        ("en", "It stands for {{IPA|a}} in words.", f"It stands for {GAP} in words."),
        ("en", "He came from {{flagicon|FRA}} France.", "He came from France."),
    ],
)
def test_what_is_not_a_footnote_leaves_a_gap(language: str, markup: str, text: str) -> None:
    assert clean(markup, language) == text


@pytest.mark.parametrize(
    "block",
    [
        "== Heading ==",
        "==Heading== <!-- note -->",
        "* item [[a|b]]\n# other\n; term : meaning\n: indented",
        "{| class=x\n! a || b\n|-\n| c\n{|\n| nested\n|}\n|}",
        "{{Infobox person\n| name = {{nowrap|Ada}}\n| born = [[London]]\n}}",
        "[[File:a.jpg|thumb|200px|A [[town]] with {{lang|fr|ville}}]]",
        "[[Datei:a.jpg|mini|Ein Dorf]]",
        "[[Unbekannt:Foto.JPG|mini|Ein Dorf]]",
        "[[Category:Towns|x]]",
        "[[de:Dorf]]",
        "<gallery>\nFile:a.jpg|caption\n</gallery>",
        "<ref>note</ref>",
        ":<math>x^2</math>",
        " preformatted",
        "----",
        "<syntaxhighlight lang=c>int x;</syntaxhighlight>",
        "<table><tr><td>cell</td></tr></table>",
        "{{Main|History}}",
        "| row of a broken table",
        "{{unclosed box",
        "[[File:a.jpg|thumb|unclosed",
        "{{DEFAULTSORT:Town}}",
    ],
)
def test_drops_what_is_not_prose(block: str) -> None:
    assert clean(f"Before it.\n{block}\nAfter it.").split("\n") in (
        ["Before it.", "After it."],
        ["Before it. After it."],
    )


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("convert|5|km", "5 km"),
        ("convert|2381741|km2|sqmi|0", "2,381,741 km²"),
        ("convert|3|to|4.5|ft|m", "3 to 4.5 ft"),
        ("convert|6|ft|2|in|abbr=on", "6 ft 2 in"),
        ("formatnum:1234567.8", "1,234,567.8"),
        ("uc:nato", "NATO"),
        ("UC: Nato_a ", "NATO_A"),
        ("ucfirst:leaders of NATO", "Leaders of NATO"),
        ("lcfirst:NASA Chief", "nASA Chief"),
        ("lc:NASA Chief", "nasa chief"),
        ("lang|fr|bonjour", "bonjour"),
        ("lang-de|Brot", "German: Brot"),
        ("lang-grc-gre|Ἀριστοτέλης", "Ancient Greek: Ἀριστοτέλης"),
        ("nowrap|1 2", "1 2"),
        ("convert|2|e6acre|km2", "2 million acres"),
        ("convert|800|koilbbl/d|m3/d", "800 thousand barrels per day"),
        ("transl|ar|ALA|Allāh", "Allāh"),
        ("transl|ar|ALA|alif", "alif"),
        ("transl|ja|dō", "dō"),
        ("Script|Copt|Ⲁ ⲁ", "Ⲁ ⲁ"),
        ("не переведено 5|Имя|Надпись|en|Name", "Надпись"),
        ("ill|Target|de|Ziel|lt=Label", "Label"),
        ("citation needed span|text=The claim|date=x", "The claim"),
        ("abbr|BC|Before Christ", "BC"),
        ("sfrac|3|4", "3/4"),
        ("frac|2|3|4", "2 3/4"),
        ("circa|1900", "c. 1900"),
        ("birth date and age|1970|3|25", "March 25, 1970"),
        ("death date|1970|03|05|1900|1|1|df=yes", "5 March 1970"),
        ("birth date|1970|3|25|df=no", "March 25, 1970"),
        ("birth date|1970|3|25|df=Y", "25 March 1970"),
        ("start date|2009|12", "December 2009"),
        ("as of|2009|lc=y", "as of 2009"),
        ("as of|2015|6|30", "As of 30 June 2015"),
        ("as of|2013|June|8", "As of 8 June 2013"),
        ("as of|2013|Sept|8|df=US", "As of September 8, 2013"),
        ("as of|2013|June|lc=y", "as of June 2013"),
        ("'", "&#39;"),  # an apostrophe that is not one of emphasis
        ("spaced ndash", " – "),
        ("US$|12000", "US$12,000"),
        ("US$|12 000", "US$12,000"),
        ("mdash|ignored", "—"),
        ("HMS|Victory", "HMS Victory"),
        ("HMS|Victory|1765", "HMS Victory (1765)"),
        ("reign|1066|1087", "r. 1066–1087"),
        ("nihongo|Aikido|合気道|Aikidō", "Aikido (合気道, Aikidō)"),
        ("val|5.2|0.1|u=km", "5.2 ± 0.1 km"),
    ],
)
def test_renders_templates_in_words(template: str, text: str) -> None:
    assert render_template(template, "en", {}) == text


def test_numbers_and_dates_follow_the_language() -> None:
    assert clean("Es sind {{formatnum:12345.5}} Orte.", "de") == "Es sind 12.345,5 Orte."
    assert (
        clean("Il est né le {{date de naissance|3|5|1900}} ici.", "fr")
        == "Il est né le 3 mai 1900 ici."
    )
    assert clean("Син є {{birth date|1900|5|3}} там.", "uk") == "Син є 3 травня 1900 там."
    assert clean("Сын ёсць {{birth date|1900|5|3}} там.", "be") == f"Сын ёсць {GAP} там."
    assert (
        clean("Au {{s-|XIX|e}}, le {{date|1|janvier|1900}}.", "fr")
        == "Au XIXe siècle, le 1er janvier 1900."
    )
    assert clean("Geburt: {{lang-ru|Москва}} ist.", "de") == "Geburt: russisch Москва ist."


@pytest.mark.parametrize(
    ("language", "markup", "text"),
    [
        ("fr", "Il dit {{citation|Bonjour}} et {{refnec|part|date=mai 2010}}.",
         "Il dit « Bonjour » et part."),
        ("fr", "Au {{XIXe siècle}}, {{Louis|x}} pesa {{unité|5400|km|2|s|-1}}.",
         f"Au XIXe siècle, {GAP} pesa 5 400 km² s⁻¹."),
        ("fr", "Au {{XIXe s.}} et au {{IVe millénaire av. J.-C.}}",
         "Au XIXe s. et au IVe millénaire av. J.-C."),
        ("bn", "শহরটি {{রূপান্তর|৫|km|mi}} দূরে অবস্থিত।", "শহরটি ৫ km দূরে অবস্থিত।"),
        ("uk", "Народився {{ДН|23|8|1945}} у Києві, помер {{ДС|4|2|1990|23|8|1945}}.",
         "Народився 23 серпня 1945 у Києві, помер 4 лютого 1990."),
        ("uk", "Це {{джерело?|перше}} місто.", "Це перше місто."),
        ("uk", "Див. також [[:Категорія:Міста України]].", f"Див. також {GAP}."),
        ("uk", "Усі [[:Категорія:Міста|міста]] України мають герб.",
         "Усі міста України мають герб."),
        ("fr", "Aux {{sp|XVIII|e|ou|XIX|e}}.", "Aux XVIIIe ou XIXe siècles."),
        ("fr", "Les {{s2|XVIII|e|XIX|e}} et {{-s|II|e}} et François {{Ier}}.",
         "Les XVIIIe et XIXe siècles et IIe siècle av. J.-C. et François Ier."),
        ("fr", "Le {{1er}} est {{M.|Dupont}}, {{nombre|12345|habitants}} ({{en}} x).",
         "Le 1er est M. Dupont, 12 345 habitants (x)."),
        ("fr", "{{Quand|De nombreux [[hôte]]s}} du {{Lien|fr=Groupe}} "
         "(parus en {{date||janvier|2005|en art}}).",
         "De nombreux hôtes du Groupe (parus en janvier 2005)."),
        ("de", "Die {{enS|United States}} in {{Höhe|540|DE-NN}}.",
         "Die englisch United States in 540 m ü. NN."),
        ("de", "Der {{Datum|1|2|1900}}, {{birth date|1900|2|1}}.", f"Der {GAP}, 1. Februar 1900."),
        ("es", "En el {{siglo|V|a|s}} nació el {{fecha|3|5|1900}}.",
         "En el siglo V a. C. nació el 3 de mayo de 1900."),
        ("it", "È {{senza fonte|il primo|date=x}} ({{en}} a) di {{M|12345|u=km}}.",
         "È il primo (a) di 12.345 km."),
        ("pt", "Do {{séc|XIX}} e {{formatnum:12345.5}}.", "Do século XIX e 12.345,5."),
        ("nl", "De {{Lang|fr|ville}} {{bron?|2010|11|20}} is.", "De ville is."),
        ("pl", "To {{ang.|x}} {{w języku|en|town}} {{odn|A|2010}}.", f"To {GAP} town."),
        ("ru", "Город ({{lang-en2|Moscow}}, {{s|5 км}}) в {{число|12345}} {{нет АИ|1|2|2010}}.",
         "Город (Moscow, 5 км) в 12 345."),
        ("bg", "{{lang-en|X}} е {{цитат2|y}} {{факт}} тук.", f"на английски: X е {GAP} тук."),
        ("ja", "彼は{{ilq|そうだ}}と{{要出典範囲|述べ|date=x}}た。{{la|Europa}}は。",
         "彼は「そうだ」と述べた。Europaは。"),
        ("zh", "王（{{bd|1900年|1月1日|1990年|2月2日|catIdx=W}}），{{link-en|中文|English}}，"
         "{{tsl|en|A|乙}}。",
         "王（1900年1月1日—1990年2月2日），中文，乙。"),
        ("ko", "{{llang|en|Seoul}}은 {{국기|대한민국}}이다.{{출처}}",
         "영어: Seoul은 대한민국이다."),
        ("sv", "Den {{språk|en|town}} är {{källa behövs|datum=x}} här.", "Den town är här."),
        ("en", "It {{citation|title=x}} is {{en icon}} here {{ru|Москва}}.", "It is here Москва."),
    ],
)  # fmt: skip
def test_templates_of_one_language(language: str, markup: str, text: str) -> None:
    assert clean(markup, language) == text


def test_names_are_spelled_as_they_are_looked_up() -> None:
    groups = [group.names for language in NAMES.templates.values() for group in language]
    for name in chain(
        NAMES.silent_templates, NAMES.pronunciations, NAMES.ships, NAMES.languages, *groups
    ):
        assert template_name(name) == name


def test_parse_arguments_numbers_the_unnamed_ones() -> None:
    assert parse_arguments(" Some_name |a| b = c |d") == (
        "some name",
        {"1": "a", "b": "c", "2": "d"},
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Berlin''' ({{IPA-de|x}}; born 1237) is", "Berlin (born 1237) is"),
        ("'''Berlin''' ({{IPA-de|x}}) is", "Berlin is"),
        ("A (named {{IPAc-en|x}}, plural As) is", "A (plural As) is"),
        ("A ({{unknown|x}}; [[Latin]]: {{unknown}}; 5 May) is", "A (5 May) is"),
        ("A ({{IPAc-en|x}};<ref>n</ref> {{IPA-de|y}}; 14 March 1879) was", "A (14 March 1879) was"),
        ("A ({{lang-pt|Vila}} {{IPA-pt|x}}; other) is", "A (Portuguese: Vila; other) is"),
        ("'''Berlin''' ([{{IPA|x}}]; {{Audio|x.ogg|Aussprache}}) ist", "Berlin ist"),
        ("'''Paris''' ({{API-fr|x}}; or /{{IPA|x}}/) is", "Paris is"),
        ("母音は、{{IPA|x}}、{{IPA|y}}という", "母音は、という"),
        ("It has 5 inh. ({{Year|2020}}). Next", "It has 5 inh. Next"),
        ("A {{IPAc-en|x}}, a town, {{IPA|y}}, is", "A, a town, is"),
        ("Text {{sfn|A}}. Next", "Text. Next"),
        ("A {{citation needed}} word", "A word"),
        ("A word.{{unknown footnote}} Next", "A word. Next"),
        ("バールーフ（Baruch {{IPA|x}}、1632年）は", "バールーフ（Baruch、1632年）は"),
        ("the function main() ends", "the function main() ends"),
        ("Vous ; et : moi", "Vous ; et : moi"),
    ],
)
def test_repairs_what_a_removal_leaves(markup: str, text: str) -> None:
    assert clean(markup) == text


def test_marks_where_words_are_missing() -> None:
    assert clean("The value of <math>x_1</math> is known.") == "The value of x₁ is known."
    assert clean(r"The value of <math>\sum x</math> is known.") == f"The value of {GAP} is known."
    assert clean("It lies {{unknown|5}} north.") == f"It lies {GAP} north."
    # From "Apollo 8".
    assert clean("It fell at {{Coord|30|12|N|74|7|W}} and sank.") == f"It fell at {GAP} and sank."
    assert clean("The town {{Coord|1|2|N}} is.") == "The town is."
    assert clean("人口は{{自治体人口|x}}人である。", "ja") == f"人口は{GAP}人である。"
    assert clean("{{Infobox}} The town") == "The town"
    assert clean(
        "In most of the accents that are spoken in the country, the sound {{IPA|p}} is voiceless."
    ) == (f"In most of the accents that are spoken in the country, the sound {GAP} is voiceless.")
    assert GAP not in clean("A character \ufffc in the source & an entity &#xFFFC;.")


def test_wiki_namespaces_come_from_the_dump() -> None:
    assert wikitext_to_paragraphs("[[Pildid:a|b]] Tekst.", "xx", ["pildid"]) == ["Tekst."]


def test_labels_are_not_passages() -> None:
    assert wikitext_to_paragraphs("Novels:\n* One\n\nConnecticut\n\nIt is one. ") == ["It is one."]


def test_broken_markup_costs_little() -> None:
    assert clean("A [[link and more.\n\nNext [[a]] paragraph.\n\nLast ]] one.") == (
        "A link and more.\nNext a paragraph.\nLast one."
    )
    assert clean("One<ref>lost. Two<ref>note</ref> three.") == "Onelost. Two three."
    assert clean("{{Infobox\n| a = b\n\nText stays.") == "Text stays."
    assert clean("{| class=x\n| cell\n\nText stays.") == "Text stays."


MARKUP = (
    "{{ }} [[ ]] {| |} | <ref> </ref> <!-- --> ''' '' = * ( ) ; , . word Ünï 漢字 <math>"
    " </math> File: ] &lt; {{convert| {{lang| {{date| {{unité| {{s2| {{citation| {{bd| {{{ }}}"
    " {{x}} &#91;&#91; &#123;{ < > -{ }- __TOC__ <nowiki> </nowiki> # <br> <table> </table> 1"
    " [ { } <sup> </sup> ref : thumb px"
)
PIECES = [
    *MARKUP.split(),
    *("\n", "\n\n", " ", "<ref name=a/>", "[http://a ", "\x01", "\x02", "\ufffc"),
]


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)),
    st.sampled_from(["en", "de", "fr", "es", "it", "pt", "pl", "ru", "ja", "zh", "ko", "xx", ""]),
)
def test_never_raises_and_leaves_no_markup(markup: str, language: str) -> None:
    for paragraph in wikitext_to_paragraphs(markup, language):
        assert not re.search(r"[\x00-\x1f]", paragraph)
        # What is written as an entity is text.
        if "&" not in markup and "nowiki" not in markup and "{{!}}" not in markup:
            markup_left = r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|</?ref\b"
            assert not re.search(markup_left, paragraph, re.IGNORECASE)
        assert paragraph == " ".join(paragraph.split())
        assert any(map(str.isalpha, paragraph))


HOSTILE_MARKUP = (
    "{{ [[ <ref> <!-- ( {{[[}} <sup> {{nowrap| [[a| {{convert|1|to| -{a: &# = <nowiki> _"
    " {{template: [[File: {{lang-de| {{formatnum:1 }} ]] {{{{ {{{a| ''''' <ref [[[[ |}} {{#if:"
    " {{unité|1|a|2| -{a;b: <table> &lt;ref&gt; 「{{x}}、"
)
HOSTILE = [
    *HOSTILE_MARKUP.split(),
    *("<ref name=a ", "\n{|", "\n|}", "[http://a ", "'''a ", "({{x}}; ", "\n", " \n", "word "),
    *("{{x}} ", "\n{{a\n", "(a; {{IPA}}, ", "<a ", "a '' ", "{{x}}\n \n", " ", "{{sfn}} , "),
    *("(" + "x" * 70 + "{{x}}", "\n{|\n|-\n| a\n", "\n{|\n|}", "{{citation|a}} "),
    *("{{XIXe siècle}}", "<!-- a", "http://a "),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_markup_ends(piece: str) -> None:
    start = time.process_time()
    wikitext_to_paragraphs(piece * (400_000 // len(piece)) + "}}]]</ref></sup>", "fr")
    # A second if the time is linear in the length; quadratic rules take 19 seconds and more.
    assert time.process_time() - start < 5


def test_deep_nesting_and_long_arguments_are_bounded() -> None:
    rng = random.Random(0)
    wikitext_to_paragraphs("{{nowrap|" + " " * 200_000 + "é=}}")
    for opening, closing in [("{{nowrap|x", "}}"), ("[[a|", "]]"), ("{{lang|fr|", "}}")]:
        depth = 20_000 + rng.randrange(10)
        wikitext_to_paragraphs("Text " + opening * depth + closing * depth)
