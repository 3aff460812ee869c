#include "zero/checkpoint/safetensors_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"

using namespace zero;
using namespace zero::checkpoint;
using zero::tests::read_text;
using zero::tests::TemporaryDirectory;

namespace {

template <class T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TensorEntry entry(std::string name, std::string dtype, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .dtype = std::move(dtype), .shape = std::move(shape)};
}

// Writes a file of that name with these pieces of data.
void write(const TemporaryDirectory& directory, const char* name, std::vector<TensorEntry> tensors,
           const std::map<std::string, std::string>& metadata,
           const std::vector<std::span<const std::byte>>& pieces) {
  place_tensors(name, tensors);
  const SafetensorsHeader header{tensors, metadata};
  const std::string text = format_header(header);
  SafetensorsWriter writer(Directory::open(directory.path().string()).create(name), text,
                           header.data_bytes());
  for (const auto& piece : pieces) writer.write(piece);
  writer.finish();
}

}  // namespace

TEST_CASE("every dtype survives a round trip") {
  const TemporaryDirectory directory;
  const std::string path = directory / "all.safetensors";
  const char* const names[] = {
      "F64",     "I64",         "U64",         "C64",     "F32",     "I32",  "U32",     "F16",
      "BF16",    "I16",         "U16",         "I8",      "U8",      "BOOL", "F8_E4M3", "F8_E5M2",
      "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "F6_E3M2", "F4"};
  std::vector<TensorEntry> declared;
  std::vector<std::vector<unsigned char>> data;
  for (const char* dtype : names) {
    declared.push_back(entry(std::string("layer.") + dtype, dtype, {4, 2}));
    std::vector<unsigned char> bytes(static_cast<std::size_t>(*bits_of(dtype)));
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(data.size()));
    data.push_back(bytes);
  }
  std::vector<std::span<const std::byte>> pieces;
  for (const auto& bytes : data) pieces.push_back(raw(bytes));
  write(directory, "all.safetensors", declared, {{"format", "pt"}, {"note", "line\n\"quoted\" é"}},
        pieces);

  const SafetensorsReader reader(path);
  CHECK(reader.metadata().at("format") == "pt");
  CHECK(reader.metadata().at("note") == "line\n\"quoted\" é");
  REQUIRE(reader.tensors().size() == declared.size());
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const TensorEntry& tensor = reader.tensors()[i];
    CHECK(tensor.name == declared[i].name);
    CHECK(tensor.dtype == declared[i].dtype);
    CHECK(tensor.shape == declared[i].shape);
    CHECK(tensor.elements() == 8);
    CHECK(reader.find(tensor.name) == &tensor);
    REQUIRE(tensor.end - tensor.begin == std::ssize(data[i]));
    std::vector<std::byte> bytes(data[i].size());
    reader.read_bytes(tensor, 0, bytes);
    CHECK(std::memcmp(bytes.data(), data[i].data(), bytes.size()) == 0);
  }
  CHECK(reader.find("layer") == nullptr);
}

TEST_CASE("numbers are read as fp32, any range of them") {
  const TemporaryDirectory directory;
  const std::string path = directory / "numbers.safetensors";
  const std::vector<double> f64{1, -2.5, 1e300, 0.1};
  const std::vector<float> f32{1, -2.5F, 3e-45F, 0.1F};
  const std::vector<std::uint16_t> b16{0x3f80, 0xc020, 0x7f80, 0x0001},
      h16{0x3c00, 0xc100, 0x7c00, 0x0001};
  const std::vector<char> rest(5);
  write(directory, "numbers.safetensors",
        {entry("d", "F64", {4}), entry("f", "F32", {2, 2}), entry("b", "BF16", {4}),
         entry("h", "F16", {4}), entry("i", "I8", {4}), entry("none", "F32", {0, 3}),
         entry("one", "BOOL", {})},
        {}, {raw(f64), raw(f32).first(5), {}, raw(f32).subspan(5), raw(b16), raw(h16), raw(rest)});

  const SafetensorsReader reader(path);
  const auto values = [&](const char* name, std::int64_t first, std::size_t count) {
    std::vector<float> result(count);
    reader.read(*reader.find(name), first, result);
    return result;
  };
  CHECK(values("d", 0, 4) ==
        std::vector<float>{1, -2.5F, std::numeric_limits<float>::infinity(), 0.1F});
  CHECK(values("f", 0, 4) == f32);
  CHECK(values("f", 1, 2) == std::vector<float>{-2.5F, 3e-45F});
  CHECK(values("b", 1, 1) == std::vector<float>{-2.5F});
  CHECK(values("b", 3, 1) == std::vector<float>{9.18354962e-41F});
  CHECK(values("h", 0, 2) == std::vector<float>{1, -2.5F});
  CHECK(values("h", 3, 1) == std::vector<float>{5.96046448e-08F});
  CHECK(values("f", 4, 0).empty());
  CHECK(values("none", 0, 0).empty());
  CHECK(reader.find("none")->begin == reader.find("none")->end);
  CHECK(reader.find("one")->elements() == 1);
  CHECK_THROWS_AS(values("f", 3, 2), UsageError);
  CHECK_THROWS_AS(values("f", -1, 1), UsageError);
  CHECK_THROWS_AS(values("none", 0, 1), UsageError);
  CHECK_THROWS_AS(values("i", 0, 1), LoadError);
}

TEST_CASE("numbers of a large tensor are read piece by piece") {
  const TemporaryDirectory directory;
  std::vector<float> all(50'000);
  std::iota(all.begin(), all.end(), 1.f);
  write(directory, "large.safetensors", {entry("f", "F32", {50'000})}, {}, {raw(all)});
  const SafetensorsReader reader(directory / "large.safetensors");
  std::vector<float> values(all.size() - 7);
  reader.read(*reader.find("f"), 7, values);
  CHECK(std::equal(values.begin(), values.end(), all.begin() + 7));
}

TEST_CASE("the file is laid out as others expect it") {
  const TemporaryDirectory directory;
  const std::string path = directory / "layout.safetensors";
  const std::vector<char> data(7);
  write(directory, "layout.safetensors", {entry("z", "F32", {1}), entry("a", "U8", {3})},
        {{"k", "v"}}, {raw(data)});
  const std::string json =
      R"({"__metadata__":{"k":"v"},"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const std::string file = read_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(length == (json.size() + 7) / 8 * 8);
  CHECK(file.substr(8, json.size()) == json);
  CHECK(file.size() == 8 + length + 7);
}

TEST_CASE("a file without tensors") {
  const TemporaryDirectory directory;
  write(directory, "empty.safetensors", {}, {}, {});
  CHECK(SafetensorsReader(directory / "empty.safetensors").tensors().empty());
}

TEST_CASE("the writer refuses invalid declarations") {
  const TemporaryDirectory directory;
  const std::vector<std::vector<TensorEntry>> cases{
      {entry("a", "F32", {1}), entry("a", "F32", {1})},
      {entry("", "F32", {1})},
      {entry("a\nb", "F32", {1})},
      {entry("__metadata__", "F32", {1})},
      {entry(std::string(1025, 'n'), "F32", {1})},
      {entry("a", "FLOAT", {1})},
      {entry("a", "F32", {-1})},
      {entry("a", "F32", std::vector<std::int64_t>(17, 1))},
      {entry("a", "F32", {std::int64_t{1} << 40, std::int64_t{1} << 40})},
      {entry("a", "U8", {std::int64_t{1} << 62}), entry("b", "U8", {std::int64_t{1} << 62}),
       entry("c", "U8", {1})},
      {entry("a", "F4", {3})},
      {entry("a", "U8", {1}), entry("b", "F32", {1})},
      {entry("\xff", "F32", {1})},
  };
  for (const auto& tensors : cases)
    CHECK_THROWS_AS(write(directory, "x.safetensors", tensors, {}, {}), UsageError);
  CHECK_THROWS_AS(write(directory, "x.safetensors", {}, {{"a", "\xff"}}, {}), UsageError);
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("too much and too little") {
  const TemporaryDirectory directory;
  for (const std::size_t size : {7, 9}) {
    const std::vector<char> data(size);
    const std::string name = "x" + std::to_string(size);
    CHECK_THROWS_AS(write(directory, name.c_str(), {entry("a", "U8", {8})}, {}, {raw(data)}),
                    SaveError);
  }
}

TEST_CASE("names of our dtypes") {
  CHECK(safetensors_name(DType::fp32) == "F32");
  CHECK(safetensors_name(DType::bf16) == "BF16");
  CHECK(safetensors_name(DType::fp16) == "F16");
  CHECK(safetensors_name(DType::int64) == "I64");
  CHECK(dtype_named("BF16") == DType::bf16);
  CHECK(dtype_named("F64") == std::nullopt);
}
