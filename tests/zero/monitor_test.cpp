// TensorBoard and CSV files, byte by byte.
#include "zero/monitor/monitor.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "zero/base/error.h"
#include "zero/monitor/event_file.h"

using namespace zero;
namespace fs = std::filesystem;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "zero_monitor_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

Config both(const fs::path& folder) {
  Config config;
  config.tensorboard = {.enabled = true, .output_path = folder / "board", .job_name = "job"};
  config.csv_monitor = {.enabled = true, .output_path = folder / "csv", .job_name = "job"};
  return config;
}

}  // namespace

TEST_CASE("checksums: the test vectors of RFC 3720") {
  CHECK(detail::crc32c("123456789") == 0xe3069283u);
  CHECK(detail::crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(detail::crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("events have the bytes of TensorBoard's own writer") {
  CHECK(hex(detail::framed(detail::scalar_event(1.5, 300, "Train/Samples/lr", 0.25f))) ==
        "2700000000000000bbe1b14609000000000000f83f10ac022a190a170a10547261696e2f53616d706c65732f6c"
        "72150000803ed58d22af");
  CHECK(hex(detail::framed(detail::version_event(1.5))) ==
        "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
}

TEST_CASE("a monitor writes DeepSpeed's tags over the samples") {
  const TemporaryFolder folder;
  {
    Monitor monitor(both(folder.path()), true);
    monitor.write({.samples = 8, .loss = 2.5, .learning_rate = 0.125});
    monitor.write({.samples = 16, .loss = 1.5, .learning_rate = 0.25, .loss_scale = 1024});
  }
  const fs::path csv = folder.path() / "csv" / "job";
  CHECK(content(csv / "Train_Samples_train_loss.csv") == "step,train_loss\n8,2.5\n16,1.5\n");
  CHECK(content(csv / "Train_Samples_lr.csv") == "step,lr\n8,0.125\n16,0.25\n");
  CHECK(content(csv / "Train_Samples_loss_scale.csv") == "step,loss_scale\n16,1024\n");
  std::string events;
  for (const auto& entry : fs::directory_iterator(folder.path() / "board" / "job")) {
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    events = content(entry.path());
  }
  for (const char* tag : {"brain.Event:2", "Train/Samples/train_loss", "Train/Samples/loss_scale"})
    CHECK(events.find(tag) != std::string::npos);
}

TEST_CASE("only the root writes, and only requested files") {
  const TemporaryFolder folder;
  Monitor(both(folder.path()), false).write({.samples = 1});
  Monitor(Config{}, true).write({.samples = 1});
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a folder that cannot be made is refused by its key") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "board") << "a file";
  std::ofstream(folder.path() / "csv") << "a file";
  Config config = both(folder.path());
  CHECK_THROWS_WITH_AS(Monitor(config, true), doctest::Contains("tensorboard.output_path"),
                       ConfigError);
  config.tensorboard.enabled = false;
  CHECK_THROWS_WITH_AS(Monitor(config, true), doctest::Contains("csv_monitor.output_path"),
                       ConfigError);
}
