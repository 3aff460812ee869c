// Token files of every kind, the order of samples, the built-in source, and refused files.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "examples/gpt/data/data_source.h"
#include "examples/gpt/data/sample_order.h"
#include "examples/gpt/data/word_source.h"
#include "zero/zero.h"

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace {

using gpt::DataOptions;
using gpt::TokenFile;
using gpt::TokenType;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return bytes_of(header);
}

std::vector<std::int32_t> all_tokens(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

const std::vector<std::uint16_t> small = {1, 2, 50256, 4, 5};
const std::vector<std::int32_t> expected = {1, 2, 50256, 4, 5};
const std::vector<std::uint32_t> wide = {1, 2, 50256, 4, 5};

TEST_CASE("the kinds of token files are recognised") {
  const TemporaryDirectory folder;
  const auto check = [&](const std::string& path, TokenType type, const std::string& kind) {
    const TokenFile file(path, type);
    CHECK(file.kind() == kind);
    CHECK(all_tokens(file) == expected);
  };
  const TokenType automatic = TokenType::automatic;
  check(folder.file("nano.bin", bytes_of(small)), automatic, "uint16 tokens");
  check(folder.file("other.u16", bytes_of(small)), automatic, "uint16 tokens");
  check(folder.file("raw", bytes_of(small)), TokenType::uint16, "uint16 tokens");
  check(folder.file("wide.u32", bytes_of(wide)), automatic, "uint32 tokens");
  check(folder.file("raw32", bytes_of(wide)), TokenType::uint32, "uint32 tokens");
  check(folder.file("gpt2.bin", llmc_header(20240520, 1, 5) + bytes_of(small)), automatic,
        "uint16 tokens (llm.c)");
  check(folder.file("llama.bin", llmc_header(20240801, 7, 5) + bytes_of(wide)), automatic,
        "uint32 tokens (llm.c)");
  const TokenFile text(folder.file("text.txt", "a\xc3\xa9"), automatic);
  CHECK(all_tokens(text) == std::vector<std::int32_t>{'a', 0xc3, 0xa9});
}

TEST_CASE("unusable files are errors that name them") {
  const TemporaryDirectory folder;
  const auto open = [](const std::string& path, TokenType type = TokenType::automatic) {
    return refusal<zero::ConfigError>([&] { TokenFile(path, type); });
  };
  CHECK(contains(open(folder / "absent"), folder / "absent: No such file"));
  CHECK(contains(open(folder.path().string()), "is a directory"));
  CHECK(contains(open(folder.file("empty", "")), "is empty"));
  CHECK(contains(open(folder.file("odd.bin", "abc")), "3 bytes, no multiple of the 2 bytes"));
  CHECK(contains(open(folder.file("binary", std::string("ab\0c", 4))), "--token-dtype"));
  CHECK(contains(open(folder.file("cut.bin", llmc_header(20240520, 1, 6) + bytes_of(small))),
                 "incomplete"));
  CHECK(contains(open(folder / "cut.bin", TokenType::uint32), "--token-dtype says otherwise"));
  CHECK(contains(open("/dev/null"), "not a regular file"));
}

// Writes numpy.save()'s format, with 128 bytes of header.
std::string npy(const std::string& type, const std::string& shape, const std::string& data,
                const std::string& fortran = "False", char version = 1) {
  std::string dict =
      "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  const std::size_t fixed = version == 1 ? 10 : 12;
  dict.resize(128 - fixed - 1, ' ');
  dict += '\n';
  const auto length = static_cast<std::uint32_t>(dict.size());
  std::string size(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return "\x93NUMPY" + std::string{version, '\0'} + size + dict + data;
}

// Returns tokens of a tokenizer with this many tokens, the same on every machine.
template <class T>
std::vector<T> random_tokens(std::size_t count, std::uint32_t vocabulary) {
  std::mt19937 random(1);
  std::vector<T> tokens(count);
  for (T& token : tokens) token = static_cast<T>(random() % vocabulary);
  return tokens;
}

template <class T>
std::string swapped_bytes(const std::vector<T>& values) {
  std::string bytes = bytes_of(values);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(T))
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + sizeof(T)));
  return bytes;
}

TEST_CASE("NumPy arrays are read behind their header, or refused by their type") {
  const TemporaryDirectory folder;
  const auto open = [&](const std::string& content, TokenType type = TokenType::automatic) {
    const std::string path = folder.file("shard.npy", content);
    return refusal<zero::ConfigError>([&] { TokenFile(path, type); });
  };
  for (const char version : {1, 2})
    for (const TokenType type : {TokenType::automatic, TokenType::uint16}) {
      const TokenFile file(
          folder.file("a.npy", npy("<u2", "(5,)", bytes_of(small), "False", version)), type);
      CHECK(file.kind() == "uint16 tokens (NumPy)");
      CHECK(all_tokens(file) == expected);
    }
  CHECK(all_tokens(TokenFile(folder.file("b.bin", npy("<i4", "(1, 5)", bytes_of(wide))),
                             TokenType::automatic)) == expected);
  CHECK(open(npy("|u1", "(3,)", "abc")) == "");
  const std::string u2 = npy("<u2", "(5,)", bytes_of(small));
  CHECK(contains(open(u2, TokenType::uint32),
                 "its header says uint16 tokens (NumPy), --token-dtype"));
  CHECK(contains(open(u2, TokenType::bytes), "--token-dtype says otherwise"));
  CHECK(contains(open(npy("<i8", "(5,)", std::string(40, 'x'))),
                 "is a NumPy array of type '<i8'; expected '<u2' or '<u4'"));
  CHECK(contains(open(npy(">u2", "(5,)", bytes_of(small)), TokenType::uint16), "of type '>u2'"));
  CHECK(contains(open(npy("<u2", "(6,)", bytes_of(small))),
                 "says 6 tokens, its size 5; the file is"));
  CHECK(contains(open(npy("<u2", "(2, 2)", bytes_of(small), "True")), "Fortran's order"));
  CHECK(contains(open(npy("<u2", "x", bytes_of(small))), "without a shape"));
  CHECK(contains(open(npy("<u2", "(99999999999, 99999999999)", "")), "without a shape"));
  CHECK(contains(open(u2.substr(0, 60)), "ends inside its header"));
}

TEST_CASE("archives and indices are refused by their kind, whatever --token-dtype is") {
  const TemporaryDirectory folder;
  const std::pair<std::string, const char*> kinds[] = {
      {"PK\x03\x04", "a zip archive (.npz or .pt)"},
      {"PAR1", "a Parquet file"},
      {"\x1f\x8b\x08", "compressed by gzip"},
      {"\x28\xb5\x2f\xfd", "compressed by zstd"},
      {std::string("MMIDIDX\0\0", 9), "give the .bin next to it"}};
  for (const auto& [magic, what] : kinds)
    for (const TokenType type : {TokenType::automatic, TokenType::uint16}) {
      CAPTURE(what);
      const std::string path = folder.file("data", magic + std::string(100, '\0'));
      CHECK(contains(refusal<zero::ConfigError>([&] { TokenFile(path, type); }), what));
    }
  CHECK(TokenFile(folder.file("t.txt", "PAR1 is text"), TokenType::automatic).is_text());
}

TEST_CASE("Megatron's index says the type of the .bin next to it") {
  const TemporaryDirectory folder;
  const auto index = [&](char code) {
    folder.file("data.idx",
                std::string("MMIDIDX\0\0", 9) + std::string("\1\0\0\0\0\0\0\0", 8) + code);
  };
  const auto open = [&](TokenType type = TokenType::automatic) {
    return refusal<zero::ConfigError>([&] { TokenFile(folder / "data.bin", type); });
  };
  folder.file("data.bin", bytes_of(wide));
  index(4);
  CHECK(all_tokens(TokenFile(folder / "data.bin", TokenType::automatic)) == expected);
  CHECK(contains(open(TokenType::uint16), "the index next to it says uint32 tokens"));
  index(5);
  CHECK(contains(open(), "data.idx says int64; expected uint16 or int32"));
  folder.file("data.bin", bytes_of(small));
  index(8);
  CHECK(all_tokens(TokenFile(folder / "data.bin", TokenType::automatic)) == expected);
}

TEST_CASE("tokens that speak against the type of the file's name are refused, with the option") {
  const TemporaryDirectory folder;
  const auto open = [&](const std::string& content, TokenType type = TokenType::automatic) {
    const std::string path = folder.file("data.bin", content);
    return refusal<zero::ConfigError>([&] { TokenFile(path, type); });
  };
  const auto ids = random_tokens<std::uint16_t>(20000, 50000);
  CHECK(open(bytes_of(ids)) == "");
  CHECK(open(bytes_of(random_tokens<std::uint16_t>(20000, 65536))) == "");
  CHECK(open(bytes_of(random_tokens<std::uint16_t>(20000, 300))) == "");
  for (const std::uint32_t vocabulary : {256u, 50257u, 128256u, 256000u}) {
    CAPTURE(vocabulary);
    const std::string content = bytes_of(random_tokens<std::uint32_t>(20000, vocabulary));
    CHECK(contains(open(content), "it holds 32-bit tokens; give --token-dtype uint32"));
    CHECK(open(content, TokenType::uint32) == "");
    CHECK(open(content, TokenType::uint16) == "");  // the user's explicit choice
    CHECK(contains(open(swapped_bytes(random_tokens<std::uint32_t>(20000, vocabulary))),
                   "32-bit big-endian"));
    CHECK(contains(open(bytes_of(random_tokens<std::uint64_t>(20000, vocabulary))), "64-bit"));
  }
  CHECK(contains(open(swapped_bytes(ids)), "it is big-endian; numpy.fromfile(FILE, '>u2')"));
  std::string text;
  while (text.size() < 5000) text += "The quick brown fox jumps over the lazy dog.\n";
  CHECK(contains(open(text.substr(0, 5000)), "it is text; give --token-dtype text"));
}

TEST_CASE("tokens outside of the vocabulary end a run before its first step") {
  const TemporaryDirectory folder;
  auto ids = random_tokens<std::uint16_t>(20000, 50000);
  ids.back() = 50300;
  const auto open = [&](std::int64_t vocabulary) {
    return refusal<zero::ConfigError>([&] {
      gpt::open_data(
          {{folder.file("data.bin", bytes_of(ids))}, TokenType::automatic, 8, vocabulary, 1});
    });
  };
  CHECK(contains(open(50257), "token 19999 is 50300, outside the model's vocabulary of 50257"));
  CHECK(open(50304) == "");
  const auto describe = [&](TokenType type) {
    return gpt::open_data({{folder / "data.bin"}, type, 8, 128256, 1})->describe();
  };
  CHECK(contains(describe(TokenType::automatic), "16 bits by the name alone"));
  CHECK(!contains(describe(TokenType::uint16), "by the name alone"));
}

TEST_CASE("a file that becomes shorter while it is read is named") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("text.txt", std::string(10000, 'a'));
  const TokenFile file(path, TokenType::automatic);
  std::filesystem::resize_file(path, 5000);
  std::vector<std::int32_t> tokens(10);
  file.read(4990, tokens);
  CHECK(tokens == std::vector<std::int32_t>(10, 'a'));
  CHECK(contains(refusal<zero::ConfigError>([&] { file.read(4995, tokens); }),
                 path + ": became shorter than the 10000 bytes"));
}

// Returns all samples of one epoch, in the order of the stream.
std::vector<std::vector<std::int32_t>> samples(const gpt::DataSource& data, std::int64_t first,
                                               std::int64_t count, std::int64_t length) {
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t i = first; i < first + count; ++i)
    data.read(i, all.emplace_back(static_cast<std::size_t>(length + 1)));
  return all;
}

TEST_CASE("several files are one text, and an epoch holds each sample once") {
  const TemporaryDirectory folder;
  DataOptions options{
      {folder.file("1.txt", "abcd"), folder.file("2.txt", "e"), folder.file("3.txt", "fghij")},
      TokenType::automatic,
      3,
      256,
      9};
  const auto data = gpt::open_data(options);
  const std::vector<std::int32_t> first = {'a', 'b', 'c', 'd'}, second = {'d', 'e', 'f', 'g'},
                                  third = {'g', 'h', 'i', 'j'};
  const std::set<std::vector<std::int32_t>> whole = {first, second, third};
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto read = samples(*data, 3 * epoch, 3, 3);
    CHECK(std::set<std::vector<std::int32_t>>(read.begin(), read.end()) == whole);
  }
  CHECK(contains(data->describe(), "10 tokens in 3 files of text, 3 samples an epoch"));
  CHECK(!data->floor().has_value());
}

TEST_CASE("texts too short, mixed kinds and foreign tokens are refused, with advice") {
  const TemporaryDirectory folder;
  const auto open = [](std::vector<std::string> paths, std::int64_t length,
                       std::int64_t vocabulary) {
    return refusal<zero::ConfigError>([&] {
      const auto data = gpt::open_data({paths, TokenType::automatic, length, vocabulary, 1});
      samples(*data, 0, 1, length);
    });
  };
  const std::string text = folder.file("a.txt", "hello"),
                    tokens = folder.file("t.bin", bytes_of(small));
  CHECK(open({text}, 4, 256) == "");
  CHECK(contains(open({text}, 5, 256), "holds 5 tokens, fewer than the 6 of one sample"));
  CHECK(contains(open({text}, 5, 256), "--sequence-length 4 or less"));
  CHECK(contains(open({text, tokens}, 2, 60000), "give files of one kind"));
  CHECK(contains(open({text}, 2, 100), "needs a vocabulary of 256; the model's is 100"));
  CHECK(contains(open({}, 2, 100), "needs a vocabulary of 256; the model's is 100"));
  CHECK(
      contains(open({tokens}, 4, 256), "token 2 is 50256, outside the model's vocabulary of 256"));
  CHECK(open({tokens}, 4, 50257) == "");
  CHECK(
      contains(open({folder.file("m.u32", bytes_of(std::vector<std::uint32_t>{1, 0xffffffff, 2}))},
                    2, 50257),
               "token 1 is 4294967295"));
}

TEST_CASE("the order of samples is a permutation of each epoch, and another one each time") {
  for (const std::int64_t count : {1, 2, 3, 17, 256, 1000}) {
    const gpt::SampleOrder order(count, 3), other(count, 4);
    std::vector<std::int64_t> previous;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> epoch_order, other_order;
      for (std::int64_t i = 0; i < count; ++i) {
        epoch_order.push_back(order.at(epoch * count + i));
        other_order.push_back(other.at(epoch * count + i));
      }
      std::set<std::int64_t> seen(epoch_order.begin(), epoch_order.end());
      CHECK(seen.size() == static_cast<std::size_t>(count));
      CHECK(*seen.begin() == 0);
      CHECK(*seen.rbegin() == count - 1);
      if (count > 16) CHECK((epoch_order != previous && epoch_order != other_order));
      previous = epoch_order;
    }
  }
}

// The probability of each text of the built-in source's words, by counting words that fit: derives
// the entropy in another way than the source itself.
double surprise(const std::string& text, std::size_t position) {
  const std::size_t begin = position == 0 ? 0 : text.rfind(' ', position - 1) + 1;
  const std::string before = text.substr(begin, position - begin);
  double all = 0, matching = 0;
  const auto words = gpt::WordSource::words();
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    const std::string word = std::string(words[rank]) + " ";
    if (!word.starts_with(before)) continue;
    all += 1.0 / static_cast<double>(rank + 1);
    if (word[before.size()] == text[position]) matching += 1.0 / static_cast<double>(rank + 1);
  }
  return -std::log(matching / all);
}

TEST_CASE("the built-in text has the entropy it states") {
  constexpr std::int64_t length = 40;
  const auto data = gpt::open_data({{}, TokenType::automatic, length, 256, 11});
  double total = 0, squares = 0;
  constexpr int count = 4000;
  for (const auto& sample : samples(*data, 0, count, length)) {
    const std::string text(sample.begin(), sample.end());
    double mean = 0;
    for (std::size_t i = 1; i <= length; ++i) mean += surprise(text, i) / length;
    total += mean;
    squares += mean * mean;
  }
  const double mean = total / count;
  const double error = std::sqrt((squares / count - mean * mean) / count);
  INFO("measured ", mean, " +- ", error, ", stated ", *data->floor());
  CHECK(std::abs(mean - *data->floor()) < 4 * error);
  CHECK(error < 0.002);
}

TEST_CASE("samples of the built-in text depend on the seed, and not on earlier reads") {
  const auto data = gpt::open_data({{}, TokenType::automatic, 64, 256, 1});
  const auto other = gpt::open_data({{}, TokenType::automatic, 64, 256, 2});
  const auto row = samples(*data, 0, 50, 64);
  CHECK(samples(*data, 37, 1, 64)[0] == row[37]);
  CHECK(samples(*other, 37, 1, 64)[0] != row[37]);
  CHECK(std::set<std::vector<std::int32_t>>(row.begin(), row.end()).size() == 50);
}

}  // namespace
