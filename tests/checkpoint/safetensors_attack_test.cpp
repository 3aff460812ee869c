// Damaged, hostile and foreign files: always a LoadError that names the file, never more.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/checkpoint/safetensors_file.h"

using namespace zero;
using namespace zero::checkpoint;
using zero::tests::read_text;
using zero::tests::TemporaryDirectory;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

// Opens the file and reads every tensor in it.
void read_everything(const std::string& path) {
  const SafetensorsReader reader(path);
  for (const TensorEntry& tensor : reader.tensors()) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.end - tensor.begin));
    reader.read_bytes(tensor, 0, bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    try {
      reader.read(tensor, 0, values);
    } catch (const LoadError&) {  // not a numeric dtype
    }
  }
}

std::string refusal(const TemporaryDirectory& directory, const std::string& content) {
  const std::string path = directory.file("attack.safetensors", content);
  try {
    read_everything(path);
  } catch (const LoadError& error) {
    const std::string message = error.what();
    CHECK(message.starts_with(path + ": "));
    CHECK(error.exit_code() == 15);
    return message.substr(path.size() + 2);
  }
  return "(accepted)";
}

// A tensor's entry in a header.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

const std::string good = entry("a", "\"F32\"", "[2]", "[0,8]");

}  // namespace

TEST_CASE("header attacks") {
  const TemporaryDirectory directory;
  const auto f32 = [](const char* name, const char* shape, const char* offsets) {
    return entry(name, "\"F32\"", shape, offsets);
  };
  const struct {
    std::string header;
    std::size_t data;
    const char* part;
  } cases[] = {
      {"{" + good + "," + f32("b", "[2]", "[4,12]") + "}", 12, "overlaps another tensor"},
      {"{" + good + "," + f32("b", "[2]", "[0,8]") + "}", 8, "overlaps another tensor"},
      {"{" + good + "," + f32("b", "[0]", "[4,4]") + "}", 8, "overlaps another tensor"},
      {"{" + good + "," + f32("b", "[2]", "[12,20]") + "}", 20,
       "bytes 8 to 12 of the data belong to no tensor"},
      {"{" + f32("b", "[2]", "[4,12]") + "}", 12, "bytes 0 to 4 of the data belong to no tensor"},
      {"{" + good + "}", 9, "1 bytes after the last tensor belong to none"},
      {"{" + good + "}", 7, "cut short"},
      {"{}", 1, "belong to none"},
      {"{" + f32("a", "[2]", "[0,4]") + "}", 4,
       "its shape and dtype need 8 bytes, data_offsets say 0 to 4"},
      {"{" + f32("a", "[2]", "[8,0]") + "}", 8, "need 8 bytes"},
      {"{" + f32("a", "[4294967296,4294967296]", "[0,8]") + "}", 8, "does not fit in 64 bits"},
      {"{" + f32("a", "[4611686018427387904,4]", "[0,0]") + "}", 0, "does not fit in 64 bits"},
      {"{" + f32("a", "[9223372036854775807,9223372036854775807,0]", "[0,0]") + "}", 0, "64 bits"},
      {"{" + f32("a", "[18446744073709551615]", "[0,0]") + "}", 0, "is too large"},
      {"{" + f32("a", "[99999999999999999999999]", "[0,8]") + "}", 8, "fraction or exponent"},
      {"{" + f32("a", "[-2]", "[0,8]") + "}", 8, "negative"},
      {"{" + f32("a", "[2]", "[-8,0]") + "}", 8, "negative"},
      {"{" + f32("a", "[2.0]", "[0,8]") + "}", 8, "fraction or exponent"},
      {"{" + f32("a", "[2e0]", "[0,8]") + "}", 8, "fraction or exponent"},
      {"{" + f32("a", "[\"2\"]", "[0,8]") + "}", 8,
       "tensor \"a\": \"shape\" must be an array of counts"},
      {"{" + f32("a", "[[2]]", "[0,8]") + "}", 8,
       "tensor \"a\": an object or array is not allowed here"},
      {"{" + f32("a", "[null]", "[0,8]") + "}", 8, "\"a\": has null"},
      {"{" + f32("a", "2", "[0,8]") + "}", 8, "tensor \"a\": \"shape\" must be an array of counts"},
      {"{" + f32("a", "[2]", "[0]") + "}", 8, "data_offsets needs two numbers"},
      {"{" + f32("a", "[2]", "[0,8,8]") + "}", 8, "data_offsets needs two numbers"},
      {"{" + f32("a", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") + "}", 8,
       "more than 16 numbers"},
      {"{" + entry("a", "\"F33\"", "[2]", "[0,8]") + "}", 8, "unknown dtype \"F33\""},
      {"{" + entry("a", "\"f32\"", "[2]", "[0,8]") + "}", 8, "unknown dtype \"f32\""},
      {"{" + entry("a", "32", "[2]", "[0,8]") + "}", 8, "tensor \"a\": \"dtype\" must be a string"},
      {"{" + entry("a", "{}", "[2]", "[0,8]") + "}", 8, "an object or array is not allowed here"},
      {"{" + entry("a", "\"F4\"", "[3]", "[0,1]") + "}", 1, "no whole number of bytes"},
      {"{" + good + "," + f32("a", "[2]", "[8,16]") + "}", 16, "has the key \"a\" twice"},
      {"{" + good + "," + f32("\\u0061", "[2]", "[8,16]") + "}", 16, "has the key \"a\" twice"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
       "has the key \"dtype\" twice"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
       "unknown field \"x\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "is missing"},
      {"{\"a\":{}}", 0, "is missing"},
      {"{\"a\":1}", 0, "tensor \"a\": an object belongs here"},
      {"{\"a\":[]}", 0, "an object or array is not allowed here"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: it must be an object of strings"},
      {"{\"__metadata__\":{\"a\":{}}}", 0, "__metadata__: an object or array is not allowed here"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "has the key \"a\" twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "has the key \"__metadata__\" twice"},
      {"{\"__metadata__\":\"x\"}", 0, "__metadata__: an object belongs here"},
      {"{\"\":{}}", 0, "name is empty"},
      {"{" + f32("a\\nb", "[2]", "[0,8]") + "}", 8,
       "tensor \"a\\x0ab\": the name has a control character"},
      {"{" + f32("a\\u0085", "[2]", "[0,8]") + "}", 8, "control character"},
      {"{" + f32("a\\u0000", "[2]", "[0,8]") + "}", 8, "control character"},
      {"{" + f32(std::string(1025, 'n').c_str(), "[2]", "[0,8]") + "}", 8, "longer than 1 KiB"},
      {"{" + good + "} {}", 8, "not valid JSON"},
      {"{" + good + "}\n\t x", 8, "not valid JSON"},
      {std::string("{") + good + "}" + std::string(3, '\0'), 8, "NUL"},
      {"{" + good + ",}", 8, "not valid JSON"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
      {" {" + good + "}", 8, "does not start with {"},
      {"[]", 0, "does not start with {"},
      {"{\"a\":" + std::string(1'000'000, '{'), 0, "not valid JSON"},
      {"{\"a\":{\"shape\":" + std::string(1'000'000, '['), 0,
       "tensor \"a\": an object or array is not allowed here"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(directory, file_of(c.header, c.data));
    CAPTURE(c.header.substr(0, 200));
    CAPTURE(message);
    CHECK(message.find(c.part) != std::string::npos);
    CHECK(message.size() < 400);
  }
}

TEST_CASE("a reader accepts every valid file") {
  const TemporaryDirectory directory;
  const std::string headers[] = {
      "{" + good + "}     ",
      "{\"__metadata__\":{}," + good + "}",
      "{" + good + ",\"__metadata__\":{\"k\":\"\\u0000\"}}",
      // Entries out of the order of the data; tensors without elements at both ends of another.
      "{" + entry("e", "\"F32\"", "[0]", "[8,8]") + "," + good + "," +
          entry("s", "\"I8\"", "[1,0]", "[0,0]") + "}",
      "{" + entry("h", "\"F16\"", "[1,2]", "[4,8]") + "," + entry("x", "\"F32\"", "[]", "[0,4]") +
          "}",
      "{" + entry("\xc3\xa9", "\"U8\"", "[2,2,2]", "[0,8]") + "}",
      "{" + entry("a", "\"F32\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2]", "[0,8]") + "}",
  };
  for (const std::string& header : headers) {
    CAPTURE(header);
    CHECK(refusal(directory, file_of(header, 8)) == "(accepted)");
  }
}

TEST_CASE("lengths of the header") {
  const TemporaryDirectory directory;
  const std::string header = "{" + good + "}";
  const std::string data(8, '\1');
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, header.size() - 1, header.size() + 1, header.size() + 8,
        header.size() + 9, std::uint64_t{1} << 26, (std::uint64_t{1} << 26) + 1,
        std::uint64_t{1} << 63, ~std::uint64_t{0}})
    CHECK(refusal(directory, with_length(length, header + data)) != "(accepted)");
  CHECK(refusal(directory, with_length(~std::uint64_t{0}, "")).find("over 64 MiB") !=
        std::string::npos);
}

// A limit, not a question of memory: two minutes with AddressSanitizer.
TEST_CASE("as many tensors as are allowed, and one more" * doctest::skip(sweep::is_sanitized)) {
  const TemporaryDirectory directory;
  const auto many = [&](std::size_t count) {
    std::string header = "{";
    for (std::size_t i = 0; i < count; ++i)
      header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
                R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    return file_of(header + "}", 0);
  };
  const std::string path = directory.file("many", many(max_tensors));
  CHECK(SafetensorsReader(path).tensors().size() == max_tensors);
  CHECK(refusal(directory, many(max_tensors + 1)) == "more than 1000000 tensors");
}

TEST_CASE("cut short at every byte, and made longer") {
  const TemporaryDirectory directory;
  const std::string header =
      "{\"__metadata__\":{\"k\":\"v\"}," + good + "," + entry("b", "\"U8\"", "[3]", "[8,11]") + "}";
  const std::string file = file_of(header, 11);
  REQUIRE(refusal(directory, file) == "(accepted)");
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(directory, file.substr(0, size)) != "(accepted)");
  }
  CHECK(refusal(directory, file + "x") != "(accepted)");
}

TEST_CASE("flipped bits and random bytes: accepted or refused, never a crash") {
  const TemporaryDirectory directory;
  const std::string header = "{\"__metadata__\":{\"k\":\"v\"}," + good + "," +
                             entry("b", "\"BF16\"", "[3]", "[8,14]") + "}";
  const std::string file = file_of(header, 14);
  for (std::size_t i = 0; i < 8 + header.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      refusal(directory, changed);
    }
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string changed = file;
    for (int i = 0; i < 4; ++i)
      changed[8 + random() % header.size()] = "{}[]\",:0123456789-eE. FU"[random() % 23];
    refusal(directory, changed);
  }
}

TEST_CASE("foreign files are named") {
  const TemporaryDirectory directory;
  const std::string zeros(4096, '\0');
  const struct {
    std::string content;
    const char* kind;
  } cases[] = {
      {"PK\x03\x04" + zeros, "this is a zip file (a PyTorch checkpoint?)"},
      {"\x1f\x8b\x08" + zeros, "this is a gzip file"},
      {"\x1f\x8b\x08" + std::string(5, '\0') + std::string(600'000, 'x'), "this is a gzip file"},
      {"\x80\x02}q" + zeros, "this is a pickle file"},
      {"\x80\x04\x95" + zeros, "this is a pickle file"},
      {"GGUF\x03" + zeros, "this is a GGUF file"},
      {"\x93NUMPY\x01" + zeros, "this is a NumPy file"},
      {"version https://git-lfs.github.com/spec/v1\n", "this is a Git LFS pointer"},
      {"{\"a\": 1, \"b\": 2}", "this is a JSON file"},
      {"<!DOCTYPE html>", "this is a HTML"},
      {"", "is empty"},
      {"abc", "is cut short after 3 bytes"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(directory, c.content);
    CAPTURE(message);
    CHECK(message.find(c.kind) != std::string::npos);
    CHECK(message.ends_with("; a safetensors file is needed"));
  }
}

TEST_CASE("paths that are no files: a message, never a wait") {
  const TemporaryDirectory directory;
  const auto message = [](const std::string& path) -> std::string {
    try {
      const SafetensorsReader reader(path);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(directory / "none").ends_with("none: cannot be read: No such file or directory"));
  CHECK(message(directory.path().string()).ends_with("is not a regular file"));
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  CHECK(message(directory / "fifo").ends_with("is not a regular file"));
  CHECK(message("/dev/null").ends_with("is not a regular file"));
}
