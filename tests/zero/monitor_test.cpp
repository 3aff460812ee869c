// TensorBoard and CSV files, JSON lines and Prometheus text, byte by byte.
#include "zero/monitor/monitor.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <limits>

#include "zero/base/error.h"
#include "zero/monitor/diagnostics.h"
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
    CHECK(monitor.writes_events());
    monitor.write_event({"Eval/accuracy", 0.75, 3});
  }
  const fs::path csv = folder.path() / "csv" / "job";
  CHECK(content(csv / "Train_Samples_train_loss.csv") == "step,train_loss\n8,2.5\n16,1.5\n");
  CHECK(content(csv / "Train_Samples_lr.csv") == "step,lr\n8,0.125\n16,0.25\n");
  CHECK(content(csv / "Train_Samples_loss_scale.csv") == "step,loss_scale\n16,1024\n");
  CHECK(content(csv / "Eval_accuracy.csv") == "step,accuracy\n3,0.75\n");
  std::string events;
  for (const auto& entry : fs::directory_iterator(folder.path() / "board" / "job")) {
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    events = content(entry.path());
  }
  for (const char* tag :
       {"brain.Event:2", "Train/Samples/train_loss", "Train/Samples/loss_scale", "Eval/accuracy"})
    CHECK(events.find(tag) != std::string::npos);
}

TEST_CASE("only the root writes, and only requested files") {
  const TemporaryFolder folder;
  Monitor(both(folder.path()), false).write({.samples = 1});
  Monitor(Config{}, true).write({.samples = 1});
  CHECK_FALSE(Monitor(Config{}, true).writes_events());
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

namespace {

Config lines_and_prometheus(const fs::path& folder) {
  Config config;
  config.zero_core.json_lines = folder / "records.jsonl";
  config.zero_core.prometheus = folder / "zerocore.prom";
  return config;
}

DiagnosticRecord diagnosis() {
  DiagnosticRecord record;
  record.step = 4;
  record.steps = 2;
  record.shows_time = record.shows_memory = record.shows_exchanges = true;
  record.time = {
      .kernels = 3, .waiting = 1, .optimizer = 0.5, .other = 0.5, .forward = 1, .backward = 2};
  record.rank.memory = {{.category = "gradients", .planned = 8, .current = 4, .peak = 8}};
  record.rank.resident_bytes = 1024;
  record.exchanges = {{.operation = "reduce", .calls = 6, .bytes_sent = 128, .seconds = 0.25}};
  return record;
}

}  // namespace

TEST_CASE("JSON lines have one object per step and per diagnostic, and a later run appends") {
  const TemporaryFolder folder;
  const Config config = lines_and_prometheus(folder.path());
  Monitor(config, true).write({.step = 1, .samples = 8, .loss = 2.5, .learning_rate = 0.125});
  {
    Monitor monitor(config, true);
    monitor.write({.step = 2,
                   .samples = 16,
                   .loss = std::numeric_limits<double>::infinity(),
                   .learning_rate = 0.25,
                   .loss_scale = 1024});
    monitor.write_diagnostics(diagnosis());
  }
  CHECK(
      content(config.zero_core.json_lines) ==
      R"({"step":1,"samples":8,"loss":2.5,"lr":0.125})"
      "\n"
      R"({"step":2,"samples":16,"loss":null,"lr":0.25,"loss_scale":1024.0})"
      "\n"
      R"({"diagnostics":{"step":4,"steps":2,"seconds":{"forward":1.0,"backward":2.0,"update":0.5,)"
      R"("waiting":1.0,"other":0.5,"step":2.5},"memory":{"gradients":{"current":4,"peak":8}},)"
      R"("resident_bytes":1024,"exchanges":{"reduce":{"calls":6,"bytes":128,"seconds":0.25}}}})"
      "\n");
}

TEST_CASE("a Prometheus file has the newest step and the newest diagnostics") {
  const TemporaryFolder folder;
  const Config config = lines_and_prometheus(folder.path());
  Monitor monitor(config, true);
  CHECK(content(config.zero_core.prometheus).empty());
  monitor.write({.step = 1, .samples = 8, .loss = 2.5, .learning_rate = 0.125});
  monitor.write_diagnostics(diagnosis());
  monitor.write({.step = 2,
                 .samples = 16,
                 .loss = std::numeric_limits<double>::quiet_NaN(),
                 .learning_rate = 0.25});
  const std::string text = content(config.zero_core.prometheus);
  CHECK(
      text.starts_with("# HELP zerocore_step Optimizer steps.\n"
                       "# TYPE zerocore_step counter\n"
                       "zerocore_step 2\n"));
  for (const char* line :
       {"zerocore_samples 16\n", "zerocore_loss NaN\n", "zerocore_learning_rate 0.25\n",
        "zerocore_step_seconds{kind=\"backward\"} 1\n",
        "zerocore_memory_bytes{in=\"memory\",category=\"gradients\"} 4\n",
        "zerocore_resident_bytes 1024\n", "zerocore_exchange_bytes{operation=\"reduce\"} 64\n"})
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  CHECK(text.find("zerocore_step 1\n") == std::string::npos);
  CHECK_FALSE(fs::exists(config.zero_core.prometheus + ".new"));
}

TEST_CASE("a file of records that cannot be written is refused by its key") {
  Config config;
  config.zero_core.json_lines = "/no/such/folder/records.jsonl";
  CHECK_THROWS_WITH_AS(Monitor(config, true), doctest::Contains("zero_core.json_lines"),
                       ConfigError);
  config.zero_core.json_lines = "";
  config.zero_core.prometheus = "/no/such/folder/zerocore.prom";
  CHECK_THROWS_WITH_AS(Monitor(config, true), doctest::Contains("zero_core.prometheus"),
                       ConfigError);
}
