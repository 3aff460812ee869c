// The headers of a checkpoint's files define the layout of their data, and must agree with the
// manifest: each difference here is an attack, not an accident, since digests detect damage before.
#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/refusal.h"
#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"

using namespace zero::checkpoint;
using zero::LoadError;
using zero::tests::contains;
using zero::tests::refusal;

namespace {

struct Checkpoint {
  Checkpoint() {
    manifest.save_id = "id";
    manifest.states = {"momentum"};
    manifest.parameters = {
        {.name = "a:x@1", .shape = {3, 5}},
        {.name = "frozen", .shape = {7}, .dtype = "BF16", .trainable = false},
        {.name = "gone", .shape = {9}, .dtype = "F32", .trainable = false, .left_out = Digest{}},
        {.name = "count", .shape = {}, .dtype = "I64", .trainable = false, .buffer = true}};
    manifest.parameters[0].dtype = "F32";
    add("one", {{3, 0, 0, 1}, {0, 0, 0, 15}, {0, 1, 0, 9}});
    add("two", {{0, 1, 9, 6}, {1, 0, 0, 7}});
  }
  void add(const char* name, const std::vector<ElementRange>& ranges) {
    entries.push_back(entries_of(manifest, ranges));
    headers.push_back(format_shard_header(manifest, entries.back()));
    const std::int64_t bytes = std::ssize(headers.back()) + entries.back().back().end();
    manifest.files.push_back({.name = name, .bytes = bytes, .chunks = {Digest{}}});
  }
  // Returns the error after a change of the first header.
  std::string refusal_of(const std::function<void(nlohmann::json&)>& change) {
    auto header = nlohmann::json::parse(headers[0].substr(length_bytes));
    change(header);
    headers[0].replace(length_bytes, std::string::npos, header.dump());
    manifest.files[0].bytes = std::ssize(headers[0]) + 8 + 24 * 4;
    return refusal<LoadError>([&] { parse_shard_headers("path", manifest, headers); });
  }

  Manifest manifest;
  std::vector<std::vector<FileEntry>> entries;
  std::vector<std::string> headers;
};

}  // namespace

TEST_CASE("headers of shards contain the places of elements, and the data begins aligned") {
  const Checkpoint checkpoint;
  const std::vector<Shard> shards =
      parse_shard_headers("path", checkpoint.manifest, checkpoint.headers);
  REQUIRE(shards.size() == 2);
  for (int i : {0, 1}) {
    CHECK(shards[i].entries == checkpoint.entries[i]);
    CHECK(shards[i].header_bytes == 4096);
  }
  // Only the headers do: the manifest names each array at most once.
  const std::string text = format_manifest(checkpoint.manifest);
  CHECK(text.find("a:x@1") == text.rfind("a:x@1"));
  CHECK(checkpoint.manifest.data_bytes() == 8 + 2 * 15 * 4 + 7 * 2);
}

TEST_CASE("headers that do not fit the manifest are refused") {
  using nlohmann::json;
  const std::string weight = "a:x@1@0", state = "a:x@1:momentum@0";
  const auto renamed = [](const std::string& from, const std::string& to) {
    return [=](json& header) {
      header[to] = header[from];
      header.erase(from);
    };
  };
  const auto with = [](const std::string& tensor, const char* field, const json& value) {
    return [=](json& header) { header[tensor][field] = value; };
  };
  const std::vector<std::pair<std::function<void(json&)>, const char*>> cases = {
      {renamed(weight, "b@0"), "tensor \"b@0\" belongs to no parameter"},
      {renamed(weight, "a:x@0"), "belongs to no parameter"},
      {renamed(state, "a:x@1:other@0"), "belongs to no parameter"},
      {renamed(state, "frozen:momentum@0"), "belongs to no parameter"},
      {renamed(state, "gone@0"), "belongs to no parameter"},
      {renamed("count@0", "count"), "does not say where it begins"},
      {renamed("count@0", "count@"), "does not say where it begins"},
      {renamed("count@0", "count@00"), "does not say where it begins"},
      {renamed("count@0", "count@-0"), "does not say where it begins"},
      {renamed("count@0", "count@0x"), "does not say where it begins"},
      {renamed("count@0", "count@99999999999999999999"), "does not say where it begins"},
      {renamed("count@0", "count@1"), "1 elements from 1 on; the parameter has 1"},
      {renamed(weight, "a:x@1@-3"), "15 elements from -3 on"},
      {renamed(weight, "a:x@1@1"), "15 elements from 1 on; the parameter has 15"},
      {renamed(weight, "a:x@1@9223372036854775807"), "15 elements from 9223372036854775807 on"},
      {with(weight, "shape", {3, 5}), "15 elements from 0 on"},
      {with(weight, "shape", {14}), "its shape and dtype need 56 bytes"},
      {with(weight, "dtype", "I32"), "has dtype I32, the manifest says F32"},
      {renamed(state, "a:x@1:momentum@1"), "elements 0 to 1 of momentum of \"a:x@1\" are in no"},
      {renamed(state, "a:x@1:momentum@6"), "elements 0 to 6 of momentum"},
      {[&](json& header) { header["__metadata__"]["save_id"] = "other"; },
       "belongs to save \"other\", the manifest is of save \"id\""},
      {[&](json& header) { header.erase("__metadata__"); }, "belongs to save \"\""},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    const std::string what = Checkpoint().refusal_of(cases[i].first);
    CAPTURE(what);
    CHECK(contains(what, "path"));
    CHECK(contains(what, cases[i].second));
  }
}

TEST_CASE("elements that two files have, or none, and digests that do not fit the size") {
  const auto refusal_of = [](const Checkpoint& checkpoint) {
    return refusal<LoadError>(
        [&] { parse_shard_headers("path", checkpoint.manifest, checkpoint.headers); });
  };
  Checkpoint twice;
  twice.add("three", {{1, 0, 2, 3}});
  CHECK(contains(refusal_of(twice), "elements 2 to 7 of \"frozen\" are given twice"));
  Checkpoint lacking;
  lacking.manifest.files.pop_back();
  CHECK(contains(refusal_of(lacking), "elements 9 to 15 of momentum of \"a:x@1\" are in no file"));
  Checkpoint chunks;
  chunks.manifest.files[1].chunks.clear();
  CHECK(contains(refusal_of(chunks), "two: the manifest has 0 chunk digests for 38 bytes"));
  Checkpoint size;
  size.manifest.files[1].bytes = 100;
  CHECK(contains(refusal_of(size), "cut short"));
  Checkpoint names;
  names.manifest.parameters.push_back(
      {.name = "a:x@1:momentum", .shape = {1}, .dtype = "F32", .trainable = false});
  CHECK(contains(refusal_of(names), "\"a:x@1:momentum\" has the name of another one's state"));
}
