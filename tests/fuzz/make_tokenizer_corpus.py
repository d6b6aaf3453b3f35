#!/usr/bin/env python3
"""Writes the seed corpus of fuzz_tokenizer: a tokenizer.json of a few tokens with every kind of part,
a zero byte, a text. Usage: tests/fuzz/make_tokenizer_corpus.py"""
import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "corpus" / "tokenizer"
TEXTS = ["ab abab<s> it's 12 é\n\n", "A\u0301\u4e00 \u180e(x)", "", "aaaaaaaabbbbbbbb" * 8, "\ufffd\U0001f600_ ▁"]
BPE = {"type": "BPE", "unk_token": "u", "fuse_unk": True, "byte_fallback": True,
       "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3, "abab": 4, "Ġ": 5, "▁": 6, "<0xC3>": 7, "<0xA9>": 8},
       "merges": ["a b", ["ab", "ab"]]}
AFFIXES = {"type": "BPE", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>",
           "vocab": {"a": 0, "##b": 1, "ab": 2, "##b</w>": 3}, "merges": ["a ##b"], "ignore_merges": True}
WORDPIECE = {"type": "WordPiece", "unk_token": "u", "max_input_chars_per_word": 9,
             "vocab": {"u": 0, "a": 1, "##b": 2, "ab": 3}}
NORMALIZERS = [None, *({"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
               "ByteLevel", "BertNormalizer", "Strip")), {"type": "Prepend", "prepend": "▁"},
               {"type": "Replace", "pattern": {"Regex": "[a&&[^b]]+|\\s*$"}, "content": "x"},
               {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}]}]
SPLITS = [None, *({"type": t} for t in ("ByteLevel", "Digits", "Whitespace", "WhitespaceSplit", "BertPreTokenizer",
          "Punctuation", "FixedLength")), {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
          {"type": "CharDelimiterSplit", "delimiter": "-"},
          {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False},
          {"type": "Split", "pattern": {"Regex": "(?i:'s)|\\p{L}{1,3}+|[^\\s[.,]]++(?!\\S)|\\h"},
           "behavior": "Contiguous", "invert": True},
          {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}]}]
DECODERS = [None, *({"type": t} for t in ("ByteLevel", "ByteFallback", "Fuse")),
            {"type": "Strip", "content": "a", "start": 1, "stop": 1}, {"type": "Metaspace", "replacement": "▁"},
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "BPEDecoder", "suffix": "</w>"},
            {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}]
POSTS = [None, {"type": "ByteLevel"}, {"type": "BertProcessing", "cls": ["a", 0], "sep": ["b", 1]},
         {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}],
          "special_tokens": {"s": {"ids": [0, 1]}}}, {"type": "Sequence", "processors": [{"type": "ByteLevel"}]}]
ADDED = [{"content": "<s>", "special": True, "normalized": False},
         {"content": " it", "lstrip": True, "rstrip": True, "single_word": True}]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for i in range(max(map(len, (NORMALIZERS, SPLITS, DECODERS)))):
        whole = {"version": "1.0", "added_tokens": ADDED, "normalizer": NORMALIZERS[i % len(NORMALIZERS)],
                 "pre_tokenizer": SPLITS[i % len(SPLITS)], "post_processor": POSTS[i % len(POSTS)],
                 "decoder": DECODERS[i % len(DECODERS)], "model": (BPE, WORDPIECE, AFFIXES)[i % 3]}
        text = json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\0" + TEXTS[i % len(TEXTS)]
        (FOLDER / f"file-{i:02}").write_bytes(text.encode())
    for i, text in enumerate(TEXTS):
        (FOLDER / f"text-{i}").write_bytes(b"\0" + text.encode())
    (FOLDER / "text-broken").write_bytes(b"\0a\xff\xe2\x82 b\xc0\x80")


if __name__ == "__main__":
    main()
