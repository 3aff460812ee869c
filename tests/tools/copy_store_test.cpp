// Tests which copies a keeper frees and keeps, and which of them is the newest complete one.
#include "tools/zero/copy_store.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "zero/base/error.h"
#include "zero/checkpoint/format/manifest.h"

namespace zero::tool {
namespace {

constexpr std::int64_t bytes = 5000;

std::string manifest(std::int64_t number, const std::vector<std::string>& files) {
  checkpoint::Manifest manifest;
  manifest.save_id = checkpoint::Digest{0, static_cast<std::uint64_t>(number)}.hex();
  manifest.tag = "step-" + std::to_string(number);
  manifest.sequence = manifest.step = number;
  manifest.optimizer = "Adam";
  for (const std::string& file : files) manifest.files.push_back({file, bytes});
  return format_manifest(manifest);
}

void fill(CopyStore& store, const std::string& save_id, const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    store.create("saves", save_id, file, bytes, [] {});
    store.complete(save_id, file);
  }
}

std::vector<std::string> ids(const CopyStore& store) {
  std::vector<std::string> ids;
  for (const CopyView& view : store.views("saves")) ids.push_back(view.save_id);
  return ids;
}

}  // namespace

TEST_CASE("a new copy frees all but the newest committed one, at most two are held") {
  CopyStore store;
  fill(store, "a", {"one"});
  store.commit("saves", "a", manifest(1, {"one"}));
  fill(store, "b", {"one"});
  CHECK(ids(store) == std::vector<std::string>{"a", "b"});
  fill(store, "c", {"one"});  // b was never committed
  CHECK(ids(store) == std::vector<std::string>{"a", "c"});
  store.commit("saves", "c", manifest(3, {"one"}));
  fill(store, "d", {"one"});
  CHECK(ids(store) == std::vector<std::string>{"c", "d"});
  store.create("other", "x", "one", bytes, [] {});
  CHECK(ids(store) == std::vector<std::string>{"c", "d"});
}

TEST_CASE("only complete files can be read, with the size that they were made with") {
  CopyStore store;
  store.create("saves", "a", "one", bytes, [] {});
  CHECK(!store.open("a", "one"));
  store.complete("a", "one");
  const auto file = store.open("a", "one");
  REQUIRE(file);
  struct stat status {};
  CHECK(fstat(file->file.get(), &status) == 0);
  CHECK(status.st_size == bytes);
  CHECK(ftruncate(file->file.get(), bytes / 2) != 0);
  CHECK(!store.open("a", "two"));
  CHECK(!store.open("b", "one"));
  CHECK_THROWS_AS(store.complete("a", "two"), SaveError);
  CHECK_THROWS_AS(store.create("saves", "a", "one", bytes, [] {}), SaveError);
}

TEST_CASE("after a load only the loaded copy is left, and older numbers count again") {
  CopyStore store;
  for (const auto& [id, number] : {std::pair("a", 1), std::pair("b", 2)}) {
    fill(store, id, {"one"});
    store.commit("saves", id, manifest(number, {"one"}));
  }
  store.keep_only("saves", "a");
  CHECK(ids(store) == std::vector<std::string>{"a"});
  fill(store, "c", {"one"});
  store.commit("saves", "c", manifest(2, {"one"}));
  CHECK(newest_copy(store.views("saves"), {}).save_id == "c");
  store.keep_only("other", "");
  CHECK(ids(store) == std::vector<std::string>{"a", "c"});
  store.keep_only("saves", "");
  CHECK(ids(store).empty());
}

TEST_CASE("a file's memory is used again for the file of the same name and size") {
  CopyStore store;
  const auto inode = [](const Descriptor& file) {
    struct stat status {};
    REQUIRE(fstat(file.get(), &status) == 0);
    return status.st_ino;
  };
  fill(store, "a", {"one", "two"});
  const auto two = inode(store.open("a", "two")->file);
  CHECK(inode(store.create("saves", "b", "three", bytes, [] {})) != two);
  CHECK(inode(store.create("saves", "b", "two", bytes, [] {})) == two);
  CHECK(inode(store.create("saves", "c", "two", bytes, [] {})) != two);  // b's has a writer
}

TEST_CASE("a copy is complete if it is committed anywhere and its files are somewhere") {
  const CopyView first{"saves", "a", 1, 10, {"one", "two"}, {"one", "two"}};
  const CopyView here{"saves", "b", 2, 20, {"one", "two"}, {"one"}};
  const CopyView there{"saves", "b", 0, 0, {}, {"two"}};
  CHECK(newest_copy({first, here, there}, {}).step == 20);
  CHECK(newest_copy({first, here}, {}).step == 10);   // the host with "two" is lost
  CHECK(newest_copy({first, there}, {}).step == 10);  // nobody that is left has committed it
  CHECK(newest_copy({first, here, there}, {"b"}).step == 10);
  CHECK(newest_copy({there}, {}).step == -1);
}

}  // namespace zero::tool
