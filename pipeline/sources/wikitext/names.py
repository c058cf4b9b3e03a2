"""Names that wikis use: namespaces, templates, languages, units, spelled as `templates.template_name` returns them.

Only data. A missing name costs little: an unknown template is judged by its context.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    """Return the dictionary that ``key value; key value`` says."""
    pairs = (pair.strip().partition(" ") for pair in text.split(";"))
    return {key: value for key, _, value in pairs}


FILES_AND_CATEGORIES = _names("""
    file, image, media, category, fichier, catégorie, datei, bild, kategorie, archivo, imagen, categoría, ficheiro,
    imagem, categoria, immagine, bestand, afbeelding, categorie, plik, grafika, kategoria, файл, изображение,
    картинка, категория, зображення, категорія, ファイル, 画像, カテゴリ, 文件, 檔案, 图像, 圖像, 分类, 分類, 파일,
    그림, 분류, fil, kategori, tiedosto, kuva, luokka, fájl, kép, kategória, soubor, dosya, resim, ملف, صورة, تصنيف,
    پرونده, رده, קובץ, תמונה, קטגוריה, चित्र, श्रेणी, αρχείο, εικόνα, κατηγορία, fișier, imagine, tập tin, hình,
    thể loại, berkas, gambar, fitxer, imatge, attēls, kategorija, vaizdas, fails, kategoreja, датотека, слика,
    категорија, slika, pilt, kategooria
""")
"""Namespaces whose links are not text; every dump adds its own."""

DISAMBIGUATION_TEMPLATES = _names("""
    disambig, disambiguation, dab, hndis, geodis, disamb, disambig-cleanup, disambiguation cleanup, mil-unit-dis,
    numberdis, letterdis, callsigndis, mathdab, roaddis, schooldis, shipindex, hospitaldis, airport dis, disambig2,
    begriffsklärung, homonymie, patronymie, toponymie, homonymes, paronymie, desambiguación, desambiguacion,
    desambig, desambiguação, desambiguacao, disambigua, doorverwijspagina, dp, dpintro, ujednoznacznienie,
    неоднозначность, многозначность, багатозначність, неадназначнасць, пояснение, вишезначна одредница,
    вишезначност, razvrstavanje, višeznačna, razločitev, förgrening, gren, grensida, flertydig, peker, pekerside,
    täsmennyssivu, aðgreining, rozcestník, rozlišovacia stránka, egyért, egyértelműsítő lap, anlam ayrımı,
    anlam ayrimi, dezambiguizare, dezambig, định hướng, trang định hướng, disambiguasi, nyahkekaburan, kthjellim,
    αποσαφήνιση, διαχωρισμός, פירושונים, توضيح, توضیح, ابهام‌زدایی, बहुविकल्पी, দ্ব্যর্থতা নিরসন, แก้กำกวม,
    მრავალმნიშვნელოვანი, բազմիմաստություն, dəqiqləşdirmə, 曖昧さ回避, aimai, 人名の曖昧さ回避, 地名の曖昧さ回避,
    消歧义, 消歧義, 消歧义页, 동음이의, 동명이인, 동음이의어 문서, nuorodinis straipsnis, nozīmju atdalīšana,
    täpsustuslehekülg, täpsustus, argipen, homonimia, homònims, desambigua, apartigilo, discretiva,
    zeimeibu škiršona, zeimeibu škieršona, hdis, hospitaldis, numdab, disamb2, disambig-acronym,
    place name disambiguation, human name disambiguation, homonymes de personnes, homonymie de clubs sportifs,
    homonymie de bateaux, homonymie de nom romain, homonymie d'établissements scolaires ou universitaires,
    patronyme, arrondissements homonymes, cantons homonymes, communes françaises homonymes, films homonymes,
    gouvernements homonymes, guerres homonymes, îles homonymes, lieux homonymes, localités homonymes, paronymes,
    personnes homonymes, saints homonymes, titres homonymes, unités homonymes, villes homonymes,
    édifices religieux homonymes, desambiguación de nombre, nota de desambiguación, homonimia geográfica,
    desambiguação de localidades, desambig-topônimo, dpafk, dpvoornaam, dpachternaam, doorverwijs,
    strona ujednoznaczniająca, ujednoznacznij, ujedn, список однофамильцев, список однофамильцев-тёзок,
    однофамильцы, список тёзок, список полных тёзок, список объектов с одинаковыми названиями,
    неоднозначност, пояснителна страница, пояснення, списки однофамільців, omonimia, grenside,
    namnförgrening, pekersida, rozcestník2, rozcestník - příjmení, rozcestník - jméno, egyért-redir,
    kişi adı anlam ayrımı, coğrafya anlam ayrımı, 姓氏曖昧さ回避, 山の曖昧さ回避, 駅の曖昧さ回避,
    学校名の曖昧さ回避, 神社の曖昧さ回避, 映画の曖昧さ回避, 作品名の曖昧さ回避, 企業の曖昧さ回避,
    放送局の曖昧さ回避, 道路の曖昧さ回避, 艦船の曖昧さ回避, バスの曖昧さ回避, 人名消歧义, 人名消歧義, 地名消歧义,
    地名消歧義, 消歧, 校名消歧义, 車站消歧義, 飛機消歧義, 동명이인 문서, 지명 동음이의, 인명 동음이의,
    학교 동음이의, 역 동음이의, 동음이의어, 文件消歧義, desambiguació
""")
DISAMBIGUATION_TITLES = _names("""
    disambiguation, disambig, begriffsklärung, homonymie, desambiguación, desambiguação, disambigua,
    doorverwijspagina, ujednoznacznienie, значения, многозначность, значення, olika betydelser, rozcestník,
    egyértelműsítő lap, anlam ayrımı, dezambiguizare, định hướng, disambiguasi, 曖昧さ回避, 消歧义, 消歧義,
    동음이의, 동명이인, täsmennyssivu, zeimeibu škiršona, zeimeibu škieršona, desambiguació, argipena,
    homonymes, неоднозначность, однофамильцы, пояснение, значення слова, неоднозначність, багатозначність,
    неадназначнасць, вишезначна одредница, višeznačna odrednica, razdvojba, razločitev, flertydig, flertydighed,
    förgrening, andre betydninger, aðgreining, rozlišovacia stránka, αποσαφήνιση, פירושונים, توضيح, ابهام‌زدایی,
    消歧义页, 消歧義頁, 消歧, nuorodinis straipsnis, nozīmju atdalīšana, täpsustus, apartigilo, nyahkekaburan,
    แก้ความกำกวม
""")
"""The qualifier in parentheses at the end of the title."""

SILENT_TEMPLATES = _names("""
    sfn, sfnp, sfnm, sfb, efn, efn2, efn-ua, efn-lr, refn, refnest, r, rp, ref, reference, citation, cref, note,
    notetag, cn, fact, citation needed, display none, hidden, notelist, dn, disambiguation needed, who, when, where,
    why, which, whom, how, by whom, clarify, according to whom, clear, -, dubious, vague, specify, verify source,
    page needed, full, full citation needed, better source needed, failed verification, original research inline,
    or, pov statement, update inline, update after, weasel-inline, quantify, elucidate, needs update,
    primary source inline, sic?, dead link, webarchive, wayback, cbignore, bots, use dmy dates, use mdy dates,
    use british english, anchor, anchors, shy, wbr, zwj, zwnj, main, see, see also, further, about, for, redirect,
    hatnote, distinguish, other uses, coord, portal, flagicon, flag icon, icon, toc, notoc, refbegin, refend,
    reflist, isbn, issn, doi, oclc, asin, pmid, commons, commonscat, commons category, wiktionary, wikisource,
    sister project links, authority control, defaultsort, pagename, featured article, good article, link fa,
    link ga, col-begin, col-end, inflation-fn, 要出典, 要検証, 脚注ヘルプ, 節スタブ, いつ, 誰, 誰2, どこ,
    信頼性要検証, 要ページ番号, 出典の明記, 要説明, 要追加記述, нет аи, источник, источник?, уточнить, кто, когда,
    réf. nécessaire, cita requerida, belege, 來源請求, 来源请求, fact2, 출처, 출처 필요, better source,
    qualify evidence, seealso, 要曖昧さ回避, リンク切れ, ウィキ座標度分秒, isbn2, kotobank, twitter, facebook,
    instagram, #tag:ref, источник не указан, нет в источнике, значимость факта, нет источника, не аи, когда, где,
    чей, какой, факт, без източник, fakt, kto, kiedy, gdzie, odn, odn/id, uwaga, fakta, källa behövs, bron, feit,
    wanneer, carece de fontes, quem, onde, bandera, bandiera, bandeira, drapeau, drapeau2, флаг, prapor, flagga,
    flaga, 국기그림, simbolo, notetag2, notea, fn, fnz, anker, coordinate, siehe auch, hauptartikel, vedi anche,
    artículo principal, artigo principal, article détaillé, osobny artykuł, zie hoofdartikel, zie ook,
    основная статья, main article, 본문, 主, 注, 注释, 何时, 谁, 坐标
""")
"""Footnotes, notes to editors, boxes: a sentence does without them."""
SILENT_PREFIXES = (
    *("cite", "infobox", "taxobox", "harv", "pp-", "stub", "coor ", "reflist"),
    *("cita ", "citar ", "citer ", "citeer ", "cytuj", "ref-", "internetquelle", "literatur"),
)
SILENT_SUFFIXES = (" icon", "-inline")

PRONUNCIATIONS = _names(
    "respell, pron, h:ipa, pronunciation, audio-ipa, api, afi, phonétique, lautschrift, мфа, мфа1, мфо"
)
PRONUNCIATION_PREFIXES = ("ipa", "api-", "afi-")
AUDIO_LABELS = _names("""
    listen, pronunciation, help, info, anhören, aussprache, hören, écouter, prononciation, escuchar, pronunciación,
    ascolta, pronuncia, ouvir, pronúncia, uitspraak, beluister, posłuchaj, wymowa, слушать, произношение, слухати,
    вимова, uttal, lyssna, kuuntele, výslovnost, 発音, 聞く, 发音, 發音, 듣기
""")
"""What ``audio`` shows when it is not a word of the text."""

FIRST_ARGUMENT_TEMPLATES = _names("""
    nowrap, nobr, nobreak, no wrap, lnobr, small, smaller, smaller2, big, large, larger, huge, sup, sub, em, strong,
    b, i, vanchor, visible anchor, visible anchor2, smallcaps, sc, sc2, small caps, caps, allcaps, aut, abbr,
    tooltip, abbrlink, ill, ill2, illm, illl, interlanguage link, interlanguage link multi, link-interwiki, lien,
    sic, as written, typo, citation needed span, clarify span, poem, ", not a typo, proper name, linktext, mvar,
    math, var, nobold, noitalic, nastaliq, nq, unicode, polytonic, script, iast, hebrew, cns, keypress, key, kbd,
    samp, mono, tt, codett, flag, flagcountry, flagu, flagcu, flaglist, noflag, pslink, birth-date,
    birth-date and age, death-date, death-date and age, nihongo2, jp, ruby, 仮リンク, 読み, 要出典範囲, ルビ, en,
    formatdate, bibleverse-nb, underline, u, trim, title case, sentence case, first word, citat, s., nts
""")
SECOND_ARGUMENT_TEMPLATES = _names("""
    lang, wikt-lang, rtl-lang, langue, hover title, color, colour, font color, fontcolor, bg
""")
"""Templates that show one argument as it is."""
LAST_ARGUMENT_TEMPLATES = _names("""
    transl, transliteration, resize, le, не переведено, не переведено 2, не переведено 3, не переведено 5, нп2, нп3,
    нп5
""")
"""Templates that show the last of their first two or three arguments."""

LOCAL_FIRST_ARGUMENT = {
    language: _names(text)
    for language, text in {
        "fr": """
            référence nécessaire, refnec, refsou, référence souhaitée, quand, précision nécessaire,
            pertinence détail, qui, référence à confirmer, petites capitales, pc, abréviation, abr, exp, ind, rom,
            rom-maj, rom-min, souverain, souverain2, souverain3, souv, souv2, souv3, pays, incise longue, term,
            terme défini, nobr romains, nobr, insécable, langue par défaut, nationalité, lien, graphie,
            citation longue, pnom, espaces insécables
        """,
        "de": """
            enf, arf, okina, unicode, polytonisch, hebr, arab, iast, abk, tooltip, zitat-en, zitat-fr, wort-anker,
            textanker, wortanker, s, hochgestellt, versalien, kapitälchen, sperrschrift, bibelstelle, nowrap,
            ohne umbruch
        """,
        "es": "esd, versalita, versalitas, comillas, tooltip, demostración, vt, no traducir, enlace alternativo",
        "it": """
            senza fonte, citazione necessaria, chiarire, quando, chi, maiuscoletto, ta, testo no a capo,
            tutto attaccato, exp, exp2, sp, virgolette, unicode, nobr, quote, citazione semplice, tooltip, abbr
        """,
        "pt": "carece de fontes2, pbpe, pepb, ilc, esp2, versalete, tooltip, mono, lknb2, quando, dn, nwrap",
        "nl": "aut, nowrap, klein, tooltip, latijn, sinds",
        "pl": "j, zw, zachowaj, spolszczenie, małe, kapitaliki, kursywa, sr, r., zwrot",
        "ru": """
            s, nobr, нет аи 2, источник? 2, comment, подсказка, разрядка, разр, угл, sfn-txt, флагификация, страна,
            имя, книга библии, цвет, фон цветом, unicode, оп, кк, капитель, нераспространённый,
            не разрывать
        """,
        "uk": "s, nobr, comment, прапорифікація, джерело?, не перекладено, нп",
        "bg": "s, nobr, ударение, уд",
        "ja": """
            jis2004フォント, 補助漢字フォント, cp932フォント, jis90フォント, 拡張漢字, 下げ核, いつ範囲, 誰範囲,
            要検証範囲, 要説明範囲, どれ範囲, 要追加記述範囲, ルビ, ふりがな, 補助漢字, 半角, 国名, inline-block,
            縦書き, 和暦
        """,
        "ko": "국기, 한자, 작게, 크게, 줄바꿈 없음, 루비, 임시링크, 번역하기",
        "zh": """
            link-en, link-wd, 僻字, ruby, 书名, nowrap, internal link helper/en, ilh, 拼音, 注音, cnsub,
            來源請求sub, 可疑文字, internal link helper/ja, internal link helper/fr, internal link helper/de, 國旗
        """,
        "sv": "nowrap, kapitäler",
        "cs": "nowrap, malé, kapitálky, kdy, kdo",
    }.items()
}
LOCAL_SECOND_ARGUMENT = {
    "de": _names("farbe, fontsize, schriftgröße"),
    "ja": _names("fontsize, interlang, フォントサイズ, 色"),
    "es": _names("idioma, color"),
    "cs": _names("vjazyce2, cizojazyčně, jazyk"),
    "sv": _names("språk, språkmall"),
    "no": _names("språk"),
    "da": _names("sprog, språk"),
    "tr": _names("dil"),
    "ko": _names("llang"),
    "pl": _names("w języku, język"),
    "fr": _names("langue2, couleur"),
}
LOCAL_SILENT = {
    "fr": _names("voir, homophone, notes, note, refh, clr, ancre"),
    "de": _names("anmerkung, fußnote, belege fehlen, überarbeiten, lückenhaft, veraltet, absatz, 0"),
    "it": _names("note, nota, nota disambigua, torna a"),
    "ru": _names("-, сфн, нет иллюстрации, проверено, переход, wikify"),
    "ja": _names("0, seealso, 独自研究, 右, vanc"),
    "zh": _names("notea, 0"),
    "es": _names("otros usos, cr, 0"),
    "pt": _names("nota de rodapé, mn, nm, nr"),
    "pl": _names("fakt, zobacz też, przypis"),
}
LOCAL_LITERALS = {
    "fr": {
        **{"e": "e", "er": "er", "re": "re", "nd": "nd", "av jc": "av. J.-C.", "ap jc": "apr. J.-C.", "m.": "M."},
        **{
            "mme": "Mme",
            "mlle": "Mlle",
            "mgr": "Mgr",
            "dr": "Dr",
            "st": "St",
            "ste": "Ste",
            "numéro": "no",
            "n°": "no",
        },
        **{"av. j.-c.": "av. J.-C.", "nº": "no", "p.": "p.", "euro": "€", "&": "et", "vol.": "vol."},
    },
    "es": {"a. c.": "a. C.", "ac": "a. C.", "d. c.": "d. C.", "dc": "d. C.", "euro": "€"},
    "pt": {"a.c.": "a.C.", "ac": "a.C.", "d.c.": "d.C.", "dc": "d.C.", "r$": "R$"},
    "ru": {"рубль": "₽", "—": " —", "тире": " —", "км²": "км²", "евро": "€"},
    "de": {"euro": "€", "nbsp": " "},
}
"""Templates of single wikis, by language; see `local_templates`."""

SHIP_PREFIXES = _names("uss, hms, ss, ms, rms, hmas, hmcs, ins, mv, rv, usns, uscgc, sms, css, hmt, ps, usat")

LITERALS = {
    **{"' \"": "' \"", "\" '": "\" '", "mdashb": " – ", "eqm": "=", "0": ""},
    **{"'": "'", "`": "'", "'s": "'s", "'\"": "'\"", "\"'": "\"'", "=": "=", "+": "+", "ft": "ft", "number sign": "#"},
    **dict.fromkeys(("ndash", "en dash", "–"), "–"),
    **dict.fromkeys(("spaced ndash", "spaced en dash", "snd", "spnd", "dash"), " – "),
    **dict.fromkeys(("mdash", "em dash", "—"), "—"),
    **dict.fromkeys(("spaced mdash", "spaced em dash"), " — "),
    **dict.fromkeys(("nbsp", "spaces", "space", "sp", "thinsp", "hairsp"), " "),
    **dict.fromkeys(("·", "dot", "middot"), " · "),
    **dict.fromkeys(("•", "bull"), " • "),
    **dict.fromkeys(("×", "times"), "×"),
    **{"minus": "−", "okina": "ʻ", "hamza": "ʼ", "ayin": "ʽ", "ad": "AD", "bce": "BCE", "euro": "€"},
}
"""Templates without arguments."""

LANGUAGES = _pairs("""
    af Afrikaans; am Amharic; ang Old English; ar Arabic; az Azerbaijani; be Belarusian; ber Berber; bg Bulgarian;
    bn Bengali; bo Tibetan; br Breton; ca Catalan; cs Czech; cy Welsh; da Danish; de German; el Greek; en English;
    eo Esperanto; es Spanish; et Estonian; eu Basque; fa Persian; fi Finnish; fr French; fro Old French; ga Irish;
    gd Scottish Gaelic; gl Galician; grc Ancient Greek; he Hebrew; hi Hindi; hr Croatian; hu Hungarian; hy Armenian;
    id Indonesian; is Icelandic; it Italian; ja Japanese; ka Georgian; kk Kazakh; ko Korean; ku Kurdish; la Latin;
    lb Luxembourgish; lt Lithuanian; lv Latvian; mk Macedonian; mn Mongolian; ms Malay; mt Maltese; nl Dutch;
    nn Norwegian; no Norwegian; non Old Norse; oc Occitan; pa Punjabi; pl Polish; ps Pashto; pt Portuguese;
    ro Romanian; ru Russian; rus Russian; sa Sanskrit; sh Serbo-Croatian; sk Slovak; sl Slovene; sq Albanian;
    sr Serbian; sv Swedish; sw Swahili; syr Syriac; ta Tamil; te Telugu; tg Tajik; th Thai; tk Turkmen; tr Turkish;
    tt Tatar; uk Ukrainian; ur Urdu; uz Uzbek; vi Vietnamese; yi Yiddish; zh Chinese; zu Zulu
""")

UNITS = _pairs("""
    km2 km²; m2 m²; cm2 cm²; mi2 sq mi; sqmi sq mi; sqkm km²; sqft sq ft; ft2 sq ft; m3 m³; km3 km³; cuft cu ft;
    cumi cu mi; c °C; °c °C; f °F; °f °F; acre acres; mile miles; foot feet; inch inches;
    oilbbl barrels; koilbbl thousand barrels; moilbbl million barrels; oilbbl/d barrels per day;
    koilbbl/d thousand barrels per day; moilbbl/d million barrels per day;
    pd/sqmi inhabitants per square mile; pd/km2 inhabitants per square kilometre;
    pd/sqkm inhabitants per square kilometre
""")
"""Units of ``convert`` that are shown otherwise than written."""

RANGE_WORDS = {
    **{"-": "–", "–": "–", "to": " to ", "to-": " to ", "to about": " to about ", "and": " and ", "or": " or "},
    **{"x": " by ", "by": " by ", "×": " × ", "*": " × ", "+/-": " ± ", "±": " ± ", ",": ", "},
}
"""What joins two values of ``convert``."""

DIGIT_GROUPING = {
    **dict.fromkeys(("en", "simple", "ja", "zh", "ko", "he", "th"), ","),
    **dict.fromkeys(("de", "es", "it", "pt", "nl", "tr", "id", "el", "da", "ro"), "."),
    **dict.fromkeys(("fr", "ru", "uk", "pl", "cs", "sv", "fi", "nb", "no", "hu", "bg"), " "),
}
"""The separator of groups of three digits, by language."""

MONTHS = {
    language: names.split()
    for language, names in {
        "en": "January February March April May June July August September October November December",
        "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "nl": "januari februari maart april mei juni juli augustus september oktober november december",
        "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
        "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
        "bg": "януари февруари март април май юни юли август септември октомври ноември декември",
    }.items()
}
"""Names of the months as in a date."""
DATE_FORMATS = {
    **dict.fromkeys(("fr", "it", "nl", "pl", "ru", "bg"), ("{day} {month} {year}", "{month} {year}")),
    **dict.fromkeys(("es", "pt"), ("{day} de {month} de {year}", "{month} de {year}")),
    **dict.fromkeys(("ja", "zh"), ("{year}年{month}月{day}日", "{year}年{month}月")),
    "en": ("{month} {day}, {year}", "{month} {year}"),
    "de": ("{day}. {month} {year}", "{month} {year}"),
    "ko": ("{year}년 {month}월 {day}일", "{year}년 {month}월"),
}
"""How a date is written, with and without the day, by language."""
