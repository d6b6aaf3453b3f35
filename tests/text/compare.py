#!/usr/bin/env python3
"""Trains larger tokenizers of every family on a text, with other options than the kept cases have, and compares what plsh
and the Hugging Face library make of random texts: ids, and what the ids decode to. Prints the first differences. Needs the
package tokenizers, and the shared library.
usage: compare.py LIBRARY TEXT [--texts N] [--seed N] [--only NAME] [--file tokenizer.json]..."""
import argparse
import ctypes
import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as D
from tokenizers import models as M
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P
from tokenizers import processors as O
from tokenizers import trainers as T

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3, QWEN2 = WORDS + r"\p{N}{1,3}" + REST, WORDS + r"\p{N}" + REST
SPECIAL = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]"]
ADDED = [AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
         AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("word", single_word=True, normalized=False),
         AddedToken("Größe", single_word=True, normalized=True), AddedToken("  ", normalized=False),
         AddedToken("<|im_start|>", special=True, normalized=False), AddedToken("<|im", normalized=False)]
PIECES = ["the", " The", "'s", "'LL", "don't", " ", "  ", "     ", "\t", "\n", "\r\n", "\n\n\n", "\r", "\u00a0", "\u3000", "\u2028",
          "\u0085", "\u200d", "\ufeff", "\u0000", "\u0007", "\u001f", "\u007f", "\u00ad", "1", "2024", "3.14159", "1,000,000", "٣٤", "½", "Ⅷ",
          "é", "e\u0301", "a\u0327\u0301", "\u0301", "ö\u0308", "\u1100\u1161\u11a8", "각", "漢字", "カタカナ", "\u30ab\u3099", "한국어", "العربية",
          "हिन्दी", "ไทย", "עברית", "русский", "ΣΊΣΥΦΟΣ", "İstanbul", "ı", "ß", "ﬁ", "Å", "ℌ", "㍿", "😀", "👨‍👩‍👧", "🇩🇪", "❤️", "\U0001F3FD",
          "_", "__init__", "▁", "▁the", "<0x41>", "<unk>", "<s>", "</s>", "[CLS]", "[MASK]", "<left>", "<right>", "<both>", "word", "Größe",
          "<|im_start|>", "<|im", "words", "(", ")", "...", "!!!", "#", "##", "$", "€", "^", "`", "~", "|", "&&", "—", "…", "。", "،", "।",
          "def f(x):", "    return x", "http://a.b/c?d=e", "CamelCaseWord", "x" * 40, "ab" * 60, "\ufffd", "\uffff", "\U0010ffff", "\U00020000"]


def template(single):
    return O.TemplateProcessing(single=single, pair=None, special_tokens=[(t, i) for i, t in enumerate(SPECIAL)])


def made():
    """(name, tokenizer without training, trainer's options)"""
    fallback = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    no_regex = P.ByteLevel(add_prefix_space=False, use_regex=False)
    isolated = lambda pattern: P.Split(Regex(pattern), "isolated")
    llama_decoder = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    yield "gpt2-prefix", M.BPE(), None, P.ByteLevel(add_prefix_space=True), D.ByteLevel(), O.ByteLevel(trim_offsets=False)
    yield "llama3", M.BPE(ignore_merges=True), None, P.Sequence([isolated(LLAMA3), no_regex]), D.ByteLevel(), O.Sequence(
        [O.ByteLevel(trim_offsets=False), template("<s> $A")])
    yield "qwen2", M.BPE(), N.NFC(), P.Sequence([isolated(QWEN2), no_regex]), D.ByteLevel(), None
    yield "smollm2", M.BPE(), None, P.Sequence([P.Digits(True), P.ByteLevel(add_prefix_space=False)]), D.ByteLevel(), None
    yield "digits-together", M.BPE(), N.NFKC(), P.Sequence([P.Digits(False), isolated(GPT2), no_regex]), D.ByteLevel(), template("[CLS] <s> $A </s> [SEP]")
    yield "prepend", M.BPE(**fallback), N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, llama_decoder, template("<s> $A </s>")
    for scheme in ("always", "first", "never"):
        yield f"metaspace-{scheme}", M.BPE(**fallback), None, P.Metaspace("▁", prepend_scheme=scheme), llama_decoder, template("<s> $A")
        yield f"metaspace-{scheme}-whole", M.BPE(unk_token="<unk>"), N.NFKC(), P.Metaspace("_", prepend_scheme=scheme, split=False), D.Metaspace(
            "_", prepend_scheme=scheme), None
    for name, normalizer in (("cased", N.BertNormalizer(lowercase=False)), ("uncased", N.BertNormalizer()),
                             ("kept-accents", N.BertNormalizer(strip_accents=False)), ("stripped", N.BertNormalizer(lowercase=False, strip_accents=True)),
                             ("no-chinese", N.BertNormalizer(handle_chinese_chars=False, clean_text=False))):
        yield f"bert-{name}", M.WordPiece(unk_token="<unk>"), normalizer, P.BertPreTokenizer(), D.WordPiece(), template("[CLS] $A [SEP]")
    yield "bert-prefix", M.WordPiece(unk_token="<unk>", continuing_subword_prefix="@@", max_input_chars_per_word=7), N.Sequence(
        [N.NFD(), N.Lowercase(), N.StripAccents()]), P.Whitespace(), D.WordPiece("@@", False), template("[CLS] [MASK] $A [SEP] [SEP]")


def train(model, normalizer, pre, decoder, post, lines):
    tokenizer = Tokenizer(model)
    byte_level = "ByteLevel" in str(pre)
    names = SPECIAL + [f"<0x{b:02X}>" for b in range(256)] * (isinstance(model, M.BPE) and bool(model.byte_fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    kind = T.WordPieceTrainer if isinstance(model, M.WordPiece) else T.BpeTrainer
    more = {"continuing_subword_prefix": model.continuing_subword_prefix} if isinstance(model, M.WordPiece) else {}
    tokenizer.train_from_iterator(lines, kind(vocab_size=4000, special_tokens=names, show_progress=False, limit_alphabet=300,
                                              initial_alphabet=sorted(P.ByteLevel.alphabet()) if byte_level else [], **more))
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [t for t in whole["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.add_tokens(ADDED)
    tokenizer.decoder = decoder
    if post is not None:
        tokenizer.post_processor = post
    return tokenizer


class Ids(ctypes.Structure):
    _fields_ = [("ids", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Text(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("length", ctypes.c_size_t), ("capacity", ctypes.c_size_t)]


class Ours:
    def __init__(self, library, tokenizer):
        self.library, self.handle, self.error = library, ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        text = tokenizer.to_str().encode()
        if library.plsh_tokenizer_parse(ctypes.byref(self.handle), text, ctypes.c_size_t(len(text)), b"x", self.error):
            sys.exit(f"refused: {self.error.raw.split(bytes(1))}")

    def encode(self, data, special):
        out = Ids()
        if self.library.plsh_tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_bool(special), ctypes.byref(out), self.error):
            return str(self.error.raw[:200])
        ids = out.ids[:out.count]
        self.library.plsh_token_ids_free(ctypes.byref(out))
        return ids

    def decode(self, ids, skip):
        out = Text()
        array = (ctypes.c_int32 * len(ids))(*ids)
        if self.library.plsh_tokenizer_decode(self.handle, array, ctypes.c_size_t(len(ids)), ctypes.c_bool(skip), ctypes.byref(out), self.error):
            return str(self.error.raw[:200])
        text = ctypes.string_at(out.bytes, out.length).decode() if out.length else ""
        self.library.plsh_token_text_free(ctypes.byref(out))
        return text


def random_text(draw, lines):
    """Odd pieces, parts of the text, single characters of any kind, and now and then bytes that are no UTF-8."""
    out = b""
    for _ in range(draw.randint(1, 14)):
        kind = draw.random()
        if kind < 0.6:
            out += draw.choice(PIECES).encode()
        elif kind < 0.8:
            line = draw.choice(lines)
            at = draw.randrange(max(1, len(line)))
            out += line[at:at + draw.randint(1, 60)].encode()
        elif kind < 0.95:
            code = draw.choice((draw.randrange(0x250), draw.randrange(0x3000), draw.randrange(0x110000)))
            out += chr(code).encode() if not 0xD800 <= code < 0xE000 else b"?"
        else:
            out += draw.randbytes(draw.randint(1, 3))
        if draw.random() < 0.3:
            out += b" "
    return out


def compare(name, tokenizer, library, lines, count, draw):
    ours, wrong = Ours(library, tokenizer), 0
    size = tokenizer.get_vocab_size()
    for number in range(count):
        data, special, skip = random_text(draw, lines), number % 2 == 0, number % 3 == 0
        text = data.decode(errors="replace")
        right, mine = tokenizer.encode(text, add_special_tokens=special).ids, ours.encode(data, special)
        ids = right if number % 4 else [draw.randrange(size) for _ in range(12)]
        right_text, my_text = tokenizer.decode(ids, skip_special_tokens=skip), ours.decode(ids, skip)
        if right != mine:
            wrong += 1
            if wrong < 4:
                print(f"{name}: {text!r}\n  {right}\n  {mine}\n  {[tokenizer.id_to_token(i) for i in right]}")
        if right_text != my_text:
            wrong += 1
            if wrong < 4:
                print(f"{name}: decode {ids} {[tokenizer.id_to_token(i) for i in ids]}\n  {right_text!r}\n  {my_text!r}")
    print(f"{name}: {count} texts, {wrong} differences", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("text")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--file", action="append", default=[])
    given = parser.parse_args()
    library, wrong = ctypes.CDLL(given.library), 0
    lines = open(given.text, encoding="utf-8").read(1 << 20).splitlines()
    lines = [line for line in lines if line.strip()]
    for path in given.file:
        wrong += compare(path, Tokenizer.from_file(path), library, lines, given.texts, random.Random(given.seed))
    for name, *parts in made():
        if not given.file and given.only in (None, name):
            wrong += compare(name, train(*parts, lines + [piece for piece in PIECES if piece != "\0"]), library, lines, given.texts, random.Random(given.seed))
    sys.exit(wrong > 0)


main()
