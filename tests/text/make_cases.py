#!/usr/bin/env python3
"""Writes cases.jsonl: small tokenizers with every part and option that plsh knows, and what the
Hugging Face library makes of texts with them. A line per tokenizer: {"tokenizer", "cases": [{"text",
"ids", "special", "decoded", "skip"}]}. Needs the package tokenizers (training breaks ties at random, so every run
gives other vocabularies).
Usage: tests/text/make_cases.py > tests/text/cases.jsonl"""
import json

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models as M
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P
from tokenizers import processors as O
from tokenizers import trainers as T

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog didn't mind; it's 2024!",
    "Attention with linear biases: 3.14159, 65,536 keys and 1,000,000 queries.",
    "Ça coûte 12€, señor Müller. ÉCOLE école İstanbul ΣΊΣΥΦΟΣ",
    "漢字とひらがな、カタカナ。 한국어 русский язык العربية हिन्दी ไทย",
    "def f(x):\n    return x ** 2  # comment\n\n\tif a_b != c: pass",
]
TEXTS = CORPUS + [
    "", " ", "  two  spaces ", "\n\n\r\n\t x", "a\u0301\u0327b e\u0301", "x\u180ey\u00a0z\u3000w\u0085",
    "'s 'T don't WE'LL", "abc<s>def </s> <x> [DAY]Foo", "👨‍👩‍👧 😀!", "½ ² Ⅷ ٣ १२३", "a▁b ▁ c_d‿e",
    "\x00\x01\x7f\xad\ufffd\ufeff", "ﬁ ﬀ Å ℌ ㍿", "aaaaaaaaaabbbbbbbbbb", "foo,bar;baz (qux) [quux]",
    "\u4e00\U00020000\uf900 mixed中文text", "$+<=>^`|~ @#%&*", "1234567 12 3", "…。，、।۔،", "<0x41><0xE9>",
]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
BYTES = P.ByteLevel(add_prefix_space=False, use_regex=False)


def bpe(normalizer=None, pre=None, decoder=None, post=None, added=(), bytes_=False, train=None, **options):
    byte_names = [f"<0x{b:02X}>" for b in range(256)] if options.get("byte_fallback") else []
    tokenizer = Tokenizer(M.BPE(**options))
    names = ["<unk>", "<s>", "</s>"] + byte_names
    trainer = T.BpeTrainer(
        vocab_size=90 + len(names) + (256 if bytes_ else 0), special_tokens=names, show_progress=False,
        initial_alphabet=sorted(P.ByteLevel.alphabet()) if bytes_ else [], limit_alphabet=60, **(train or {}))
    return finish(tokenizer, trainer, normalizer, pre, decoder, post, added)


def wordpiece(normalizer=None, pre=None, decoder=None, post=None, added=(), **options):
    tokenizer = Tokenizer(M.WordPiece(unk_token="[UNK]", **options))
    trainer = T.WordPieceTrainer(vocab_size=160, special_tokens=["[UNK]", "<s>", "</s>"], show_progress=False)
    return finish(tokenizer, trainer, normalizer, pre, decoder, post, added)


def finish(tokenizer, trainer, normalizer, pre, decoder, post, added):
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(CORPUS, trainer)
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [t for t in whole["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.add_tokens(list(added))
    if decoder is not None:
        tokenizer.decoder = decoder
    if post is not None:
        tokenizer.post_processor = post
    return Tokenizer.from_str(tokenizer.to_str())


def sequence(kind, *parts):
    return kind.Sequence(list(parts))


def split(expression, behavior="isolated", invert=False):
    return P.Split(Regex(expression), behavior, invert)


def tokenizers():
    template = O.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>",
                                    special_tokens=[("<s>", 1), ("</s>", 2)])
    strip = AddedToken("<x>", lstrip=True, rstrip=True, normalized=False)
    word = AddedToken("Foo", single_word=True, normalized=False)
    day = AddedToken("[DAY]", normalized=True, special=True)
    level = D.ByteLevel()
    for expression in (GPT2, LLAMA3, BLOOM, O200K):
        yield bpe(N.NFC(), sequence(P, split(expression), BYTES), level, O.ByteLevel(), [strip], bytes_=True)
    yield bpe(None, P.ByteLevel(add_prefix_space=True), level, template, [word], bytes_=True)
    yield bpe(None, sequence(P, P.Digits(True), P.ByteLevel(add_prefix_space=False)), level, bytes_=True)
    yield bpe(None, P.ByteLevel(add_prefix_space=False), level, O.RobertaProcessing(("</s>", 2), ("<s>", 1)),
              bytes_=True, ignore_merges=True)
    for behavior in BEHAVIORS:
        yield bpe(None, split(r"\s+", behavior), D.Fuse(), unk_token="<unk>")
        yield bpe(None, split(r"[A-Z]\w*|\d+", behavior, True), D.Fuse(), unk_token="<unk>", fuse_unk=True)
        yield bpe(None, P.Punctuation(behavior), D.Fuse())
    llama = sequence(D, D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0))
    spaces = sequence(N, N.Prepend("▁"), N.Replace(" ", "▁"))
    yield bpe(spaces, None, llama, template, [strip, word], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    yield bpe(spaces, None, llama, None, [day], unk_token="<unk>", byte_fallback=True)
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            yield bpe(None, P.Metaspace(prepend_scheme=scheme, split=cut), D.Metaspace(prepend_scheme=scheme),
                      template, [AddedToken("<x>", normalized=False)], unk_token="<unk>")
    yield bpe(None, P.Whitespace(), D.BPEDecoder("</w>"), end_of_word_suffix="</w>", unk_token="<unk>",
              train={"end_of_word_suffix": "</w>"})
    yield bpe(N.Lowercase(), P.BertPreTokenizer(), D.WordPiece("##"), None, [day], continuing_subword_prefix="##",
              unk_token="<unk>", train={"continuing_subword_prefix": "##"})
    bert = O.BertProcessing(("</s>", 2), ("<s>", 1))
    for clean in (True, False):
        for accents in (None, True, False):
            for lower in (True, False):
                yield wordpiece(N.BertNormalizer(clean, not clean, accents, lower), P.BertPreTokenizer(),
                                D.WordPiece("##", clean), bert, [day])
    yield wordpiece(N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece(), template, [strip, word],
                    max_input_chars_per_word=4)
    for normalizer in (N.NFD(), N.NFKC(), N.NFKD(), N.Nmt(), sequence(N, N.NFD(), N.StripAccents()),
                       N.Strip(True, False), N.Strip(False, True), N.Replace(Regex(r"\W+"), " "),
                       N.Replace(Regex(r"[[:punct:]&&[^.]]"), ""), N.ByteLevel()):
        yield wordpiece(normalizer, P.WhitespaceSplit(), D.WordPiece("##", False))
    for expression in (r"[^\S\n]+", r"\h+", r"a{1,2}+", r"\b", r"[\w&&\P{L}]+", r"(?i)THE|É", r"x*", r"^.", r"\R",
                       r"\p{Han}+|\p{Hiragana}+", r"[[:alpha:]]+", r"(?<=\s)\S+?(?=o)", r"(?m:.)\n", r"[^[a-z][0-9]]+"):
        yield wordpiece(None, split(expression), None)
    yield wordpiece(None, sequence(P, P.FixedLength(3), P.Digits(False)), D.WordPiece("", True))


def main():
    for number, tokenizer in enumerate(tokenizers()):
        cases = []
        for place, text in enumerate(TEXTS):
            if (place + number) % 3 == 0 and place >= len(CORPUS):
                continue
            special, skip = (place + number) % 2 == 0, place % 3 == 0
            ids = tokenizer.encode(text, add_special_tokens=special).ids
            if not ids:
                continue
            decoded = tokenizer.decode(ids, skip_special_tokens=skip)
            cases.append({"text": text, "ids": ids, "special": special, "decoded": decoded, "skip": skip})
        line = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        print(json.dumps(line, ensure_ascii=True, separators=(",", ":")))


if __name__ == "__main__":
    main()
