"""What languages need beyond sentencex: where it splits too eagerly, and where it does not split.

- `JOINS`: patterns at which two pieces are one sentence;
- `ABBREVIATIONS`: words whose full stop does not end a sentence;
- `FINAL_WORDS`: words as short as an initial that do end sentences;
- `NO_ENDS`: punctuation at which sentencex splits, and which does not end a sentence in a language;
- `CUTS`: ends of sentences that it does not know.

sentencex has abbreviations for some languages; CLDR has them (its suppressions of sentence breaks)
for de en es fr it pt ru only. The words here are those frequent in Wikipedia's text that sentencex
lacks, in the form of Moses' ``nonbreaking_prefix`` files, from which the names of Latin letters in
Indic scripts are taken. `benchmarks.sentences` measures the result.
"""

import re
from typing import NamedTuple


class Join(NamedTuple):
    """Two pieces are one sentence if the end of the first matches `before` and the start of the
    next `after`.
    """

    languages: str
    """Codes of the languages of the rule, or ``*`` for all."""
    before: str
    after: str
    example: str
    """Real text; ``|`` marks where sentencex splits."""


_QUOTE_END = r"[\"'”’」』》)）]"
_JA_NEW_SENTENCE = (
    "ところ|とても|とにかく|とくに|とはいえ|なお|なぜ|なんと|ならば|でも|では、|のち|はじめ|もし|もちろん|もっと|"
    "にもかか|かつて|かれ|やがて|やっと|やはり"
)

LAST_CASED = "\u058f"
LOWER_CASE = "".join(char for char in map(chr, range(0x590)) if char.islower())
UPPER_CASE = "".join(char for char in map(chr, range(0x590)) if char.isupper())
SMALL_LETTER = f"[{LOWER_CASE}]"
_DE_NEW_SENTENCE = (
    r"(?:D(?:er|ie|as|em|en|ort|ann|a|anach|abei|amit|iese\w*)|E[rs]|Sie|I[mn]|A[mnb]|Auf|Aus|Mit|Nach|Bei|Beim|"
    r"Seit\w*|Ein\w*|Vo[mnr]|Zu[mr]?|Auch|Für|Als|Ab|Unter|Über|Während|Sein\w*|Ihre?\w*|So|Wegen|Heute|Später|Hier)\b"
)

JOINS = (
    Join("*", "", r"\W+$", "Isn't it grand any more.'|\""),
    Join("*", "", r"[,;:)\]}/、，；：」』）】]", "the entries 2 −2 8 −92...| , is the double of the first"),
    Join("*", r"^\W*\d+\W*", "", "2.| A number alone is not a sentence."),
    Join("*", rf"(?:[?!…]|\.\.|[\d{UPPER_CASE}{LOWER_CASE}]\.)['\"”“’)\]»]*", SMALL_LETTER,
         "Още през 1 век пр.| н.| е.| от римляните."),
    Join("*", rf"(?:^|[\s(.-])[{UPPER_CASE}{LOWER_CASE}]\.", rf"(?<! \n)[{UPPER_CASE}º-]", "Nel 44 a.|C.| e poi."),
    Join("*", r"(?![0-9])\d\.", r"(?![0-9])\d", "তিনি ২৭.| ৩ দিনে কাজ শেষ করেন।"),
    Join("en", r"\b(?:approx|vols?|Vols?|bd|Bd|chs?|Chs?|cols?|avg|deg|resp|Deut|Gal|Cor|Lev|Phil|Cir)\.", r"\d",
         "Duration approx.| 24 mins."),
    Join("de", r"(?:^|[\s(])\d{1,2}\.", f"(?!{_DE_NEW_SENTENCE})[A-ZÄÖÜ]", "Im 19.| Jahrhundert war es so."),
    Join("ja", _QUOTE_END, f"(?!{_JA_NEW_SENTENCE})[とのなはをにでもがやへか（]|って", "彼は「そうだ。」|と言った。"),
    Join("ja zh", r"[「『][^」』\n]*", r"[^「『\n]*[」』]", "『Dr.|スランプ』の連載を開始。"),
    Join("ja zh", r"[A-Za-z](?:\.|!)|\d\.", r"[^「『（\s]", "日本のYahoo!|カテゴリに登録される。"),
    Join("ko", r"(?:^|[\s(~-])\d{1,4}\.", "", "그는 1990.| 10.| 3.| 에 태어났다."),
    Join("ko", rf"(?:[?!]|{_QUOTE_END})",
         r"['\"’”]?(?:(?:이?라(?:고|는|며|면서|던)?|이?란|고|는|며|면서|하고|하며|등|와|과|을|를|의|이다)[\s,.도만]|했|한다|하였|하여)",
         "전권을 맡겨 달라.\"|고 요청하였다."),
)  # fmt: skip

ABBREVIATIONS = {
    language: frozenset(words.split())
    for languages, words in {
        "be": (
            "акад арх бел вул вёс воз гл г гг губ ген дац дж заг зб імя ім інж кн л мал маст муз "
            "млн напр нар обл пав пас пл пр праф р рас рэд рус св с см ст стар т тыс франц ч"
        ),
        "bg": "бл ген гр д-р инж кап кн ок пл полк пр проф род св сл стр ул",
        "bn as bpy": (
            "এইচ এফ এল এম এন আর এস আই ইউ ডব্লিউ ডাবলিউ এক্স ওয়াই জেড কিউ মোছা কিমি মি সেমি কেজি লি"
        ),
        "ca oc": (
            "a av avda bda c cap cf cia col ctra d dr dra ed excm fig fra gral hble il·lm jr lat "
            "llic mn mons ms núm núms op p pàg pàgs pl pp prof rda ref sr sra sres srs sta st sto "
            "tel trad univ vg vol vols"
        ),
        "cs sk": (
            "arch bl č dr gen ing kpt kard mgr mjr mudr např napr npor nám odst plk por prof př sv tj tzv ul"
        ),
        "da no nb nn": (
            "adj afd bd bl ca cand chr dr ekskl fhv fig fr frk gl hr ing jf joh kap kgl kl mag mr "
            "nr oberst pag past prof red rev sct skt sml st stk str tidl tlf vol årg"
        ),
        "de": "bl dt engl frz geb gen gest griech hl hrsg ital lat russ span türk",
        "el pnt": (
            "αγ αι αλ αν απ αρ αριθ βλ γεν δηλ δρ εκ εκατ εκδ έκδ ελλ επ θεσ κ κα κεφ κος κων λ "
            "λεωφ λοχ μτφ ν νομ ντ οδ όπ π πβ πλ πρβλ πρωτ σ σελ σημ σμηναγ στρ στρατ συν συνταγμ "
            "σχ τ ταγμ τηλ τόμ υπ υποστρ φ χ χιλ χλμ"
        ),
        "eo": "d-ro s-ro s-ino prof ekz inĝ k.s",
        "es": "arz av avda cap fig gral hnos núm pág págs sta sto st vol",
        "et": "dr hr insen jms kpt krahv lk ltn mag mjr nr pr prof snd st sünd vt",
        "eu": "and art dr jn sn st zk",
        "fr": (
            "av bd boul ch chap coll dr éd env fig lt mgr mlle mm mme mmes no p pp pr prof st ste "
            "vol janv févr juil sept oct nov déc"
        ),
        "gl": (
            "a av avda cap cf col d dna dr dra ed excmo fig gral ilmo lat n nº num núm op p páx "
            "páxs pp prof profa sr sra sres srta st sta sto tel trad univ vol vols"
        ),
        "gu": (
            "એ બી સી ડી ઇ ઈ એફ જી એચ આઈ જે કે એલ એમ એન ઓ પી ક્યૂ આર એસ ટી યુ વી ડબલ્યુ એક્સ વાય ઝેડ કિમી મી સેમી દા.ત"
        ),
        "he yi": "עמ מס",
        "hi mr ne mai bho sa new": (
            "ए बी सी डी ई एफ ऐफ जी एच ऐच आई आइ आय जे के एल ऐल एम ऐम एन ऐन ओ पी क्यू आर एस ऐस टी "
            "यू वी व्ही डब्ल्यू डब्लू एक्स वाई वाय जेड झेड उदा मी किमी सेमी मिमी कि मि किग्रा "
            "ग्रा रु"
        ),
        "hu": "dr gr id ifj özv prof st szt",
        "id ms jv su": (
            "dr drs dra gg h hj ir jl kab kav kec kel kh mgr no nn ny pdt prof ps rp sdr st tgk tn ust"
        ),
        "it": (
            "avv brig ca cap card cfr col dr fig gen geom ing n nn on pag pagg prof sen sig st ten vol"
        ),
        "ka": "ძვ ახ წ გვ იხ მაგ კმ ათ მლნ სოფ ქ წმ აკად პროფ ე.წ ე.ი",
        "kn tcy": "ಎಫ್ ಎಚ್ ಎಲ್ ಎಮ್ ಎಂ ಎನ್ ಆರ್ ಎಸ್ ಐ ಎಕ್ಸ್ ಡಬ್ಲ್ಯೂ ವೈ ಉದಾ",
        "lt": (
            "akad angl arch doc dr gen gerb gyd inž kan kap kard kn kun lat lenk mag mjr mons nr "
            "pan plk popiež prof pvz red rus šv t vad vok vysk žr"
        ),
        "lv ltg": (
            "akad arh bīsk dr ģen ing inž kap kr lpp mag māc nr piem plkv prāv prof sal sv šv tūkst"
        ),
        "mk": "акад бр ген гр д-р др дон инж кн л м на пр проф р с св сл сп стр таб тел ул чл",
        "ml": "എഫ് എച്ച് എൽ എം എൻ ആർ എസ് ഐ എക്സ് ഡബ്ല്യു വൈ ഉദാ",
        "nl": (
            "bijv blz ca dhr dr drs gem gen ing ir jhr kap mevr mgr mr nr o.a prof sint st vnl zgn"
        ),
        "or": "ଏଫ୍ ଏଚ୍ ଏଲ୍ ଏମ୍ ଏନ୍ ଆର୍ ଏସ୍ ଆଇ ଏକ୍ସ ୱାଇ",
        "pa": (
            "ਏ ਬੀ ਸੀ ਡੀ ਈ ਐੱਫ ਐਫ ਜੀ ਐੱਚ ਐਚ ਆਈ ਜੇ ਕੇ ਐੱਲ ਐਲ ਐੱਮ ਐਮ ਐੱਨ ਐਨ ਓ ਪੀ ਕਿਊ ਆਰ ਐੱਸ ਐਸ ਟੀ ਯੂ ਵੀ ਡਬਲਯੂ ਐਕਸ ਵਾਈ ਕਿਮੀ ਮੀ ਸ"
        ),
        "pl": (
            "abp bp gen hr im inż kard kpt ks lit łac m.in mjr np ok płk pow ppłk prof pseud rtm "
            "str św śp tab tzw ul ur woj"
        ),
        "pt": (
            "alm av cap cel dr dra eng fig gen núm p pág págs pe prof profa séc sr sra st sta sto vol"
        ),
        "ro": (
            "acad alin art bd bl cap cca cf col conf cpt dl dna dr ed fig gen ing jud lat lect lt "
            "mag nr op pag pct plt pr prof reg sf sft st str tel vol"
        ),
        "ru": (
            "ак акад архиеп архим вел вып ген губ дер еп изд им инж кн митр наб о о-в оз ок оп "
            "пер пл полк пос прот проф ред род рис св свящ см сост стр табл ул"
        ),
        "si": "එම් එස් එන් එල් ආර් එෆ් එච් අයි",
        "sl": (
            "akad angl arh bl dr fr gdč gen gl inž it kap kard kn lat mag mgr msgr nem npr o polk "
            "prof roj sl str sv t tu ul univ vel"
        ),
        "sr hr bs sh": (
            "акад бр ген гђа гђица год др дон инж кап књ кол лат мр мон нпр о п пл пок пор прим "
            "проф пук рођ св сл стр тзв ул фра чл akad bl br čl dipl don dr engl franc fra gđa "
            "gđica gen god grč ing inž kap knj kol lat mag mons mr msgr njem npr o op p pl pok "
            "por prim prof puk rođ st str sv šp tal tzv ul usp vlč"
        ),
        "sv": (
            "bl bd ca dr d eg fig frk fr gen hr ing jfr joh kap kl kungl lic mag msgr nr pag prof "
            "red resp s:t s:ta sid st tel tfn vol"
        ),
        "ta": (
            "ஏ பி சி டி ஈ எப் எஃப் ஜி எச் ஐ ஜே கே எல் எம் என் ஓ கியூ ஆர் எஸ் யு யூ வி டபிள்யூ எக்ஸ் ஒய் இசட் கிமீ"
        ),
        "te": "ఎఫ్ ఎచ్ హెచ్ ఎల్ ఎమ్ ఎం ఎన్ ఆర్ ఎస్ ఐ ఎక్స్ డబ్ల్యు వై ఉదా",
        "tr az": (
            "alb apt av bkz cad doç dr ecz gen gnkur hz kd kur m.ö m.s mah müh no onb opr ord örn "
            "prof sok st şti tuğg uzm yrd"
        ),
        "uk": "акад вип вул ген ім ін кн обл оз ок пл пос прот проф рис с св см смт стор табл",
        "ur pnb": (
            "اے بی سی ڈی ای ایف جی ایچ جے کے ایل ایم این او پی کیو آر ایس ٹی یو وی ڈبلیو ایکس وائی زیڈ"
        ),
        "vi": "bs dr gs lm ls nxb pgs ths tp ts tx",
    }.items()
    for language in languages.split()
}
"""In lower case; before a capital, they may end a sentence after a number ("in 1890 г. Later")."""

FINAL_WORDS = {
    language: frozenset(words.split())
    for languages, words in {
        "gu": "છે છું છો",
        "hi mai bho": "है हैं था थे थी थीं हो हूँ हूं की दी ली दो लो भी ही ना",
        "mr": "हे का ना ती तो",
        "ne": "छ छौ हो थे",
        "pa": "ਹੈ ਸੀ ਹਾਂ ਹੋ ਸੇ",
        "si": "වේ ය යි වී වූ ද ඇත",
    }.items()
    for language in languages.split()
}
"""Verbs and particles of one syllable, which are not initials."""

OWN_INITIALS = frozenset(("en", "ko", "ja", "zh"))
"""Languages in which sentencex joins initials itself ("vitamin C. The" is two sentences), or that
have none.
"""

NO_ENDS = {
    language: marks
    for languages, marks in {
        "hy hyw": "․.՜՞",
        "km lo th bo dz": ".",
        "my shn mnw": ".၊",
    }.items()
    for language in languages.split()
}

YEARS_END = frozenset(("ar", "ary", "arz", "he"))
"""Languages without capitals in which a year often ends a sentence, with the abbreviation of its
era.
"""

# sentencex does not split after 。 if a digit follows: "…がある。2003年には…" stays one piece. Bengali is
# often typed with the currency sign ৷ instead of the danda ।. The end of a Khmer sentence is
# unknown to sentencex.
CUTS = {
    **dict.fromkeys(("ja", "zh"), re.compile("(?<=[。！？])(?=[0-9０-９])|[「『（(“」』）)”]")),
    **dict.fromkeys(("bn", "as", "bpy"), re.compile(r"(?<=৷)(?!\W*$)|[(“)”]")),
    "km": re.compile(r"(?<=[។៕])(?!\W*$)|[(“«)”»]"),
}
