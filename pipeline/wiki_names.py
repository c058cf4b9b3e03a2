"""What the wikis call things: namespaces, templates, languages, units, in the spelling that `template_name` gives.

Only data. A name that is missing here costs little: an unknown template is treated by where it stands.
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
"""Namespaces whose links are no text; every dump adds its own."""

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
    zeimeibu škiršona, zeimeibu škieršona
""")
DISAMBIGUATION_TITLES = _names("""
    disambiguation, disambig, begriffsklärung, homonymie, desambiguación, desambiguação, disambigua,
    doorverwijspagina, ujednoznacznienie, значения, многозначность, значення, olika betydelser, rozcestník,
    egyértelműsítő lap, anlam ayrımı, dezambiguizare, định hướng, disambiguasi, 曖昧さ回避, 消歧义, 消歧義,
    동음이의, täsmennyssivu, zeimeibu škiršona, zeimeibu škieršona
""")
"""What stands in parentheses at the end of the title."""

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
    référence nécessaire, refsou, réf. nécessaire, quand, précision nécessaire, cita requerida, senza fonte,
    citazione necessaria, belege, 來源請求, 来源请求, fact2, 출처, 출처 필요
""")
"""Footnotes, notes to editors, boxes: a sentence reads on without them."""
SILENT_PREFIXES = ("cite", "infobox", "taxobox", "harv", "pp-", "stub", "coor ", "reflist")

PRONUNCIATIONS = _names("respell, pron, h:ipa, pronunciation, audio-ipa, api, afi, phonétique, lautschrift")

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

SHIP_PREFIXES = _names("uss, hms, ss, ms, rms, hmas, hmcs, ins, mv, rv, usns, uscgc, sms, css, hmt, ps, usat")

LITERALS = {
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
    pd/sqmi inhabitants per square mile; pd/km2 inhabitants per square kilometre;
    pd/sqkm inhabitants per square kilometre
""")
"""Units of ``convert`` that are not shown as they are written."""

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
"""What stands between groups of three digits, by language."""
