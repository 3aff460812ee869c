// The comparison's table and its three reports: figures, verdicts, and escaping of all names.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/tools/report_samples.h"
#include "tools/report/html.h"
#include "tools/report/html_style.h"
#include "tools/report/json.h"
#include "tools/report/markdown.h"
#include "tools/report/markup.h"
#include "tools/report/number.h"
#include "tools/report/report.h"
#include "tools/report/table.h"
#include "tools/report/verdict.h"
#include "zero/base/error.h"
#include "zero/base/ledger.h"
#include "zero/base/number_text.h"

namespace {

using namespace zero::report;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::vector<std::string> cells_of(const Table& table, const std::string& label) {
  for (const Row& row : table.rows)
    if (row.label == label) return row.cells;
  return {"there is no such row"};
}

using Cells = std::vector<std::string>;
const Cells no_such_row = {"there is no such row"};

TEST_CASE("numbers are grouped, rounded and have one unit per chart") {
  CHECK(fixed(0, 2) == "0.00");
  CHECK(fixed(999.995, 1) == "1,000.0");
  CHECK(fixed(1234567.891, 2) == "1,234,567.89");
  CHECK(fixed(-1234.5, 0) == "-1,234");
  CHECK(fixed(-123, 0) == "-123");
  CHECK(fixed(std::nan(""), 2) == "not finite");
  CHECK(fixed(1e300, 0).size() == 301 + 100);
  CHECK(std::string(byte_unit(999).name) == "KiB");
  CHECK(byte_unit(5 * zero::mebibyte)(2 * zero::mebibyte) == "2.00");
  CHECK(std::string(byte_unit(5 * zero::gibibyte).name) == "MiB");
  CHECK(byte_unit(24 * zero::gibibyte)(24 * zero::gibibyte) == "24.00");
  CHECK(zero::byte_text(0) == "0.00 KiB");
  CHECK(zero::byte_text(1536) == "1.50 KiB");
  CHECK(zero::byte_text(std::int64_t{3} << 20) == "3.00 MiB");
  CHECK(zero::byte_text(std::int64_t{3} << 30) == "3.00 GiB");
  CHECK(zero::shortest_text(1e-5) == "1e-05");
  CHECK(zero::shortest_text(0.1) == "0.1");
  CHECK(time_unit(0.25)(0.25) == "250.0");
  CHECK(hexadecimal(0xabc) == "0x0000000000000abc");
  for (const double range : {1e-9, 0.3, 1., 7., 65.28, 1e12}) {
    const double ticks = range / tick_distance(range, 6);
    CHECK(ticks > 2);
    CHECK(ticks <= 6);
  }
}

TEST_CASE("the table has the figures of each variant and no row that nobody uses") {
  const Table table = table_of(samples::plain());
  CHECK(table.columns == Cells{"stage 0", "stage 1"});
  CHECK(cells_of(table, "parameters") == Cells{"4.00", "4.00"});
  CHECK(cells_of(table, "optimizer state") == Cells{"8.00", "4.00"});
  CHECK(cells_of(table, "peak, all of these") == Cells{"12.00", "8.00"});
  CHECK(cells_of(table, "planned") == Cells{"12.00", "8.00"});
  CHECK(cells_of(table, "resident (PSS)") == Cells{"13.50", "9.50"});
  CHECK(cells_of(table, "in the file, all of these") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "read per step") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "read, GiB/s") == Cells{"1.95", "1.95"});
  CHECK(cells_of(table, "all gather") == Cells{"3.00", "3.00"});
  CHECK(cells_of(table, "inside nodes") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "between nodes") == Cells{"1.00", "1.00"});
  CHECK(cells_of(table, "wait on communication") == Cells{"200.0", "200.0"});
  CHECK(cells_of(table, "step") == Cells{"721.0", "721.0"});
  CHECK(cells_of(table, "tokens/s") == Cells{"12,346", "12,346"});
  CHECK(cells_of(table, "final loss") == Cells{"3.000000", "3.000000"});
  CHECK(cells_of(table, "bits equal") == Cells{"yes", "yes"});
  for (const char* unused : {"file", "all to all", "written per step", "written, GiB/s"})
    CHECK_MESSAGE(cells_of(table, unused) == no_such_row, unused);
}

TEST_CASE("no table has a row of zeros or of nothing, no page an empty card") {
  for (const samples::Sample& sample : samples::all) {
    CAPTURE(sample.name);
    for (const Row& row : table_of(sample.make()).rows)
      CHECK_MESSAGE((row.kind == Row::Kind::heading ||
                     std::any_of(row.cells.begin(), row.cells.end(),
                                 [](const std::string& cell) {
                                   return cell.find_first_not_of("0.") != std::string::npos;
                                 })),
                    row.label);
    const std::string html = html_of(sample.make());
    for (const char* empty : {"<dl class=\"facts\">\n</dl>", "<dl class=\"notes\">\n</dl>",
                              "<ul class=\"legend\">\n</ul>", "<tbody>\n</tbody>", "<p></p>"})
      CHECK_MESSAGE(count_of(html, empty) == 0, empty);
  }
  // Without rows, a heading would give an empty card.
  for (const samples::Sample& sample : samples::all) {
    const std::vector<Row> rows = table_of(sample.make()).rows;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows[i].kind == Row::Kind::heading) {
        REQUIRE(i + 1 < rows.size());
        CHECK(rows[i + 1].kind != Row::Kind::heading);
      }
  }
}

TEST_CASE("a comparison of which nothing ran does not look like success, and reports the failure") {
  const auto looks = [](const Comparison& comparison, const char* css_class) {
    return count_of(html_of(comparison), std::string("class=\"verdict") + css_class + "\"") == 1;
  };
  CHECK(looks(samples::plain(), " equal"));
  CHECK(looks(samples::awkward(), " fails"));
  CHECK(looks(samples::run_and_plan(), ""));
  CHECK(looks(samples::plan(), " plan"));
  CHECK(looks(samples::failed(), " fails"));
  CHECK(looks(samples::nothing(), " fails"));
  CHECK(verdict_of(samples::plan()).sentences.front().starts_with("A plan, nothing ran:"));
  const Verdict failed = verdict_of(samples::failed());
  CHECK(failed.kind == Verdict::Kind::incomplete);
  CHECK(failed.sentences == Cells{"Incomplete: only stage 0 ran to the end.",
                                  "stage 1: cannot reserve 12.00 GiB for zero engine.",
                                  "stage 2: did not run."});
  CHECK(verdict_of(samples::nothing()).sentences.front() == "Nothing ran to its end.");
  for (const Comparison& comparison : {samples::failed(), samples::nothing()})
    for (const std::string& text :
         {html_of(comparison), markdown_of(comparison), text_of(comparison), json_of(comparison)})
      CHECK(count_of(text, "cannot reserve 12.00 GiB for zero engine") == 1);
  CHECK(count_of(html_of(samples::plan()), "stage 3 saves nothing over stage 0 here.") == 1);
}

TEST_CASE("a plan has no bits: it is neither equal to a run nor differs from it") {
  const Comparison mixed = samples::run_and_plan();
  CHECK(bits_equal(mixed));
  CHECK(cells_of(table_of(mixed), "bits equal") == no_such_row);
  CHECK(cells_of(table_of(mixed), "optimizer state") == Cells{"8.00", "4.00"});
  CHECK(cells_of(table_of(mixed), "planned") == Cells{"12.00", "8.00"});
  CHECK(cells_of(table_of(mixed), "peak, all of these") == Cells{"12.00", ""});
  CHECK(cells_of(table_of(mixed), "step") == Cells{"721.0", ""});
  CHECK(verdict_of(mixed).sentences ==
        Cells{"stage 0 is the only run: there are no bits to compare.",
              "stage 1 is a plan: it has no bits."});
  // The order of variants does not matter.
  Comparison three = samples::plain();
  three.variants.insert(three.variants.begin(), samples::plan_of("planned", 1));
  CHECK(cells_of(table_of(three), "bits equal") == Cells{"", "yes", "yes"});
  three.variants.back().digest ^= 1;
  CHECK(!bits_equal(three));
  CHECK(cells_of(table_of(three), "bits equal") == Cells{"", "yes", "NO"});
  CHECK(verdict_of(three).sentences.front().starts_with("stage 1 differs from stage 0"));
  CHECK(verdict_of(three).sentences.back() == "planned is a plan: it has no bits.");
  CHECK(nlohmann::json::parse(json_of(mixed)).at("bits_equal").is_null());
  CHECK(nlohmann::json::parse(json_of(mixed)).at("variants")[1].at("bits_equal").is_null());
}

TEST_CASE("GPU ranks: host memory has its own column, and copies have a speed if timed") {
  const Table table = table_of(samples::on_gpu());
  const auto headings = [&](const Table& of) {
    Cells labels;
    for (const Row& row : of.rows)
      if (row.kind == Row::Kind::heading) labels.push_back(row.label);
    return labels;
  };
  CHECK(headings(table)[0] == "GPU memory per rank, MiB");
  CHECK(headings(table)[1] == "in host memory per rank, MiB");
  CHECK(headings(table_of(samples::plain()))[0] == "memory per rank, MiB");
  CHECK(headings(table_of(samples::plain()))[1] == "in the file per rank, MiB");
  CHECK(cells_of(table, "peak, all of these") == Cells{"12.00", "4.00"});
  CHECK(cells_of(table, "gradients") == Cells{"0.00", "2.00"});
  CHECK(cells_of(table, "in host memory, all of these") == Cells{"0.50", "6.50"});
  CHECK(cells_of(table, "of it page-locked") == Cells{"0.50", "2.50"});
  CHECK(cells_of(table, "resident (PSS)") == Cells{"3.00", "3.00"});
  CHECK(cells_of(table, "GPU to host per step") == Cells{"0.00", "2.00"});
  CHECK(cells_of(table, "GPU to host, GiB/s") == Cells{"", "19.53"});
  CHECK(cells_of(table, "host to GPU per step") == Cells{"0.00", "1.00"});
  CHECK(cells_of(table, "host to GPU, GiB/s") == no_such_row);
  CHECK(cells_of(table_of(samples::plain()), "of it page-locked") == no_such_row);
  const std::string html = html_of(samples::on_gpu());
  // Each of five charts is drawn for wide windows and for phones.
  CHECK(count_of(html, "<svg class=\"wide\"") == 5);
  CHECK(count_of(html, "<svg class=\"narrow\"") == 5);
  CHECK(count_of(html, "Most: stage 1 + cpu with 6.50 MiB per rank, 38 % of it page-locked.") == 1);
  const auto json = nlohmann::json::parse(json_of(samples::on_gpu())).at("variants")[1];
  CHECK(json.at("in_host").at("optimizer_state").at("peak") == 4 * samples::mib);
  CHECK(json.at("in_pinned").at("gradients").at("planned") == 2 * samples::mib);
  CHECK(json.at("copies_per_step").at("to_host").at("bytes") == 2.0 * samples::mib);
}

TEST_CASE("each kind of other bits is told, with its place") {
  const Variant reference = samples::variant("stage 0", samples::mib);
  const auto found = [&](auto change) {
    Variant other = reference;
    change(other);
    return first_difference(reference, other);
  };
  CHECK(found([](Variant&) {}) == "");
  CHECK(found([](Variant& v) { v.tokens_per_second = 1; }) == "");
  // One unit in the last place, and a sign that == would not see.
  CHECK(found([](Variant& v) {
          v.steps[1].loss = std::nextafter(3.25, 4);
        }).starts_with("step 2: loss 3.25 (0x400a000000000001), not 3.25 (0x400a000000000000)"));
  CHECK(found([](Variant& v) {
          v.steps[0].gradient_norm = -1.25;
        }).starts_with("step 1: gradient norm -1.25"));
  CHECK(found([](Variant& v) { v.steps[2].skipped = true; }) == "step 3: skipped, not applied");
  CHECK(found([](Variant& v) { v.steps.pop_back(); }) == "2 steps, not 3");
  CHECK(found([](Variant& v) { v.digest = 1; }).starts_with("weights or moments: digest 0x00"));

  const Comparison comparison = samples::awkward();
  CHECK(!bits_equal(comparison));
  CHECK(cells_of(table_of(comparison), "bits equal") ==
        Cells{"yes", "yes", "yes", "NO", "NO", "NO"});
  const std::string text = text_of(comparison);
  CHECK(count_of(text, " differs from stage 0 at ") == 3);
  CHECK(count_of(text, "Bits equal:") == 0);
}

TEST_CASE("variants in wire formats need not have the bits of the others, and show their losses") {
  Comparison comparison = samples::plain();
  comparison.variants.insert(comparison.variants.begin(), comparison.variants.front());
  Variant& encoded = comparison.variants.front();
  encoded.name = "encoded";
  encoded.encoded = true;
  encoded.digest += 1;
  encoded.steps.back().loss *= 1.01;
  CHECK(bits_equal(comparison));
  CHECK(verdict_of(comparison).kind == Verdict::Kind::equal);
  const std::string text = text_of(comparison);
  CHECK_MESSAGE(text.find("encoded sends less in wire formats, so its bits may differ: final "
                          "loss ") != std::string::npos,
                text);
  CHECK(text.find("of stage 0 (+1.00 %).") != std::string::npos);
  CHECK(cells_of(table_of(comparison), "bits equal") == Cells{"encoded", "yes", "yes"});
  CHECK(json_of(comparison_of(json_of(comparison), "x")) == json_of(comparison));
  comparison.variants.back().digest += 1;
  CHECK(!bits_equal(comparison));
}

TEST_CASE("report.json is JSON, contains the results, and reads back bit for bit") {
  for (const samples::Sample& sample : samples::all) {
    CAPTURE(sample.name);
    const Comparison comparison = sample.make();
    const std::string text = json_of(comparison);
    const auto json = nlohmann::json::parse(text);
    if (runs_of(comparison).variants.size() > 1)
      CHECK(json.at("bits_equal") == bits_equal(comparison));
    CHECK(json.at("planned") == (sample.name == std::string("plan")));
    CHECK(json.at("variants").size() == comparison.variants.size());
    if (!comparison.variants.empty())
      CHECK(json.at("variants")[0].at("peak_bytes") == comparison.variants[0].peak());
    const Comparison read = comparison_of(text, "report.json");
    CHECK(json_of(read) == text);
    for (std::size_t v = 0; v < read.variants.size(); ++v)
      CHECK(first_difference(comparison.variants[v], read.variants[v]) == "");
  }
  const auto diverged = nlohmann::json::parse(json_of(samples::awkward())).at("variants")[4];
  CHECK(diverged.at("final_loss").is_null());
  CHECK(diverged.at("steps")[2].at("loss_bits") == "0x7ff0000000000000");
}

TEST_CASE("a file that is no report is an error that names it") {
  for (const char* text : {"", "[]", "{}", R"({"format": "zero-comparison", "version": 2})",
                           R"({"format": "zero-comparison", "version": 1, "variants": 3})"}) {
    try {
      comparison_of(text, "some.json");
      FAIL("taken: " << text);
    } catch (const zero::ConfigError& error) {
      CHECK(std::string(error.what()).starts_with("some.json is no report.json"));
    }
  }
  std::string cut = json_of(samples::plain());
  cut.replace(cut.find("0x"), 2, "ab");
  CHECK_THROWS_AS(comparison_of(cut, "some.json"), zero::ConfigError);
}

TEST_CASE("the page holds all it needs, and names stay names") {
  for (const samples::Sample& sample : samples::all) {
    const Comparison comparison = sample.make();
    const std::string html = html_of(comparison);
    for (const char* foreign : {"<script", "http:", "https:", "//cdn", "src=", "href=", "url(",
                                "@import", "<link", "<img", "<iframe", "javascript:"})
      CHECK_MESSAGE(count_of(html, foreign) == 0, foreign);
    // If a name closed the style sheet, there would be a second end of it.
    CHECK(count_of(html, "</style>") == 1);
    CHECK(count_of(html, "<svg") == count_of(html, "</svg>"));
    for (const char* coordinate : {"\"nan", "Mnan", "Lnan", " nan", "\"inf"})
      CHECK(count_of(html, coordinate) == (coordinate[0] == ' ' && !bits_equal(comparison)));
  }
  CHECK(count_of(html_of(samples::plain()), "<svg") == 2 * 4);
  CHECK(count_of(html_of(samples::least()), "On the wire") == 0);
  CHECK(escape_html("<a href=\"x\">&'") == "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

// Returns the colors of the light or the dark theme, with variables resolved.
std::map<std::string, std::string> fills_of(const std::string& style, bool dark) {
  std::map<std::string, std::string> variables, fills;
  const std::size_t second = style.find(":root", style.find(":root") + 1);
  const std::regex variable("--([a-z0-9-]+): (#[0-9a-f]{6})"),
      fill("\\.([cs])-([a-z_]+) \\{ *(?:fill|background): ([^;]+);");
  for (std::sregex_iterator it(style.begin(), style.end(), variable), end; it != end; ++it)
    if (static_cast<std::size_t>(it->position()) < second || dark)
      variables["var(--" + it->str(1) + ")"] = it->str(2);
  for (std::sregex_iterator it(style.begin(), style.end(), fill), end; it != end; ++it) {
    const std::string color = it->str(3);
    fills[it->str(1) + "-" + it->str(2)] = color[0] == '#' ? color : variables.at(color);
  }
  fills["verdict"] = variables.at("var(--bad)");
  return fills;
}

TEST_CASE("a color has one meaning on the whole page, in bars and legends") {
  Cells names = {"compute",        "waiting",    "optimizer", "other",     "all_gather",
                 "reduce_scatter", "all_reduce", "broadcast", "all_to_all"};
  for (int i = 0; i < zero::memory_category_count; ++i)
    names.emplace_back(zero::name_of(static_cast<zero::MemoryCategory>(i)));
  for (const bool dark : {false, true}) {
    const auto fills = fills_of(html_style, dark);
    std::map<std::string, std::string> meanings = {{fills.at("verdict"), "what went wrong"}};
    for (const std::string& name : names) {
      REQUIRE_MESSAGE(fills.count("c-" + name) == 1, name);
      CHECK(fills.at("c-" + name) == fills.at("s-" + name));
      const auto [other, is_new] = meanings.emplace(fills.at("c-" + name), name);
      CHECK_MESSAGE(is_new, name << " has the color of " << other->second);
    }
  }
}

TEST_CASE("a row of report.md has as many cells as the table, whatever the names") {
  for (const Comparison& comparison : {samples::plain(), samples::awkward()}) {
    std::istringstream lines(markdown_of(comparison));
    std::size_t rows = 0;
    for (std::string line; std::getline(lines, line);) {
      CHECK(count_of(line, "<script") == 0);
      if (!line.starts_with("|")) continue;
      ++rows;
      CHECK(count_of(line, "|") - count_of(line, "\\|") == comparison.variants.size() + 2);
    }
    CHECK(rows == table_of(comparison).rows.size() + 2);
  }
}

TEST_CASE("a directory that cannot take the report is refused before the work") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("report_test." + std::to_string(::getpid()));
  prepare_directory((folder / "a" / "b").string());
  write_report(samples::plain(), (folder / "a" / "b").string());
  for (const char* name : {"report.html", "report.md", "report.json"})
    CHECK(std::filesystem::file_size(folder / "a" / "b" / name) > 500);
  std::ofstream(folder / "file") << "in the way";
  CHECK_THROWS_AS(prepare_directory((folder / "file" / "x").string()), zero::ConfigError);
  CHECK_THROWS_AS(write_report(samples::plain(), (folder / "none").string()), zero::SaveError);
  CHECK(link_line("/a b/./c/") == "report: file:///a%20b/c/report.html");
  CHECK(link_line("c") ==
        "report: file://" + std::filesystem::current_path().string() + "/c/report.html");
  std::filesystem::remove_all(folder);
}

TEST_CASE("a time line draws each span, and joins those that would be too narrow") {
  Comparison comparison = samples::plain();
  Lane lane{"compute", {{"compute", "work", "work a", 0, 0.5}}};
  for (int i = 0; i < 100; ++i)
    lane.spans.push_back(
        {"all_gather", "gather", "gather b", 0.5 + 1e-6 * i, 0.5 + 1e-6 * (i + 1)});
  comparison.timeline = Timeline{"stage 3", 1, {lane}};
  const std::string page = html_of(comparison);
  CHECK(page.find("Simulated step, ms") != std::string::npos);
  CHECK(page.find("work a: 0.0 to 500.0 ms") != std::string::npos);
  CHECK(page.find("100 \u00d7 gather: 500.0 to 500.1 ms") != std::string::npos);
  CHECK(html_of(samples::plain()).find("Simulated step") == std::string::npos);
  const std::string json = json_of(comparison);
  CHECK(json_of(comparison_of(json, "report.json")) == json);
}

}  // namespace
