#include "tools/report/html.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/report/bar_chart.h"
#include "tools/report/html_style.h"
#include "tools/report/loss_chart.h"
#include "tools/report/markup.h"
#include "tools/report/notes.h"
#include "tools/report/table.h"
#include "tools/report/timeline.h"
#include "tools/report/verdict.h"

namespace zero::report {
namespace {

using Value = std::function<double(const Variant&)>;

double largest(const Comparison& comparison, const Value& value) {
  double found = 0;
  for (const Variant& variant : comparison.variants) found = std::max(found, value(variant));
  return found;
}

std::string percent(double value, double of) {
  return fixed(100 * value / of, 0) + " %";
}

bool on_gpu(const Comparison& comparison) {
  return !used_in_host(comparison).empty();
}

// Resident memory is the host's.
BarChart memory_chart(const Comparison& comparison) {
  const bool host = !on_gpu(comparison);
  const auto resident = [&](const Variant& v) { return host ? v.resident : 0; };
  const double most =
      std::max(largest(comparison, [](const Variant& v) { return static_cast<double>(v.peak()); }),
               largest(comparison, resident));
  BarChart chart{"Peak memory per rank by category, a bar per variant",
                 nothing_ran(comparison) ? "planned" : "peak",
                 byte_unit(most),
                 {}};
  for (const Variant& variant : comparison.variants) {
    Bar bar{variant.name, {}, resident(variant), "resident (PSS)"};
    for (const std::string& category : used_categories(comparison))
      bar.segments.push_back(
          {category, title_of(category), static_cast<double>(memory_of(variant, category).peak)});
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

BarChart host_chart(const Comparison& comparison) {
  const auto rests = [](const Variant& v) { return static_cast<double>(v.host_bytes()); };
  const auto resident = [](const Variant& v) { return v.resident; };
  const double most = std::max(largest(comparison, rests), largest(comparison, resident));
  BarChart chart{
      "Host memory per rank by category, a bar per variant", "peak", byte_unit(most), {}};
  for (const Variant& variant : comparison.variants) {
    Bar bar{variant.name, {}, variant.resident, "resident (PSS)"};
    for (const std::string& category : used_in_host(comparison))
      bar.segments.push_back(
          {category, title_of(category), static_cast<double>(in_host_of(variant, category).peak)});
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

BarChart time_chart(const Comparison& comparison) {
  const double longest = largest(comparison, [](const Variant& v) { return v.time.total(); });
  BarChart chart{"Time per step by activity, a bar per variant", "step", time_unit(longest), {}};
  for (const Variant& v : comparison.variants)
    chart.bars.push_back({v.name,
                          {{"compute", "compute", v.time.compute},
                           {"waiting", "wait on communication", v.time.waiting},
                           {"optimizer", "optimizer", v.time.optimizer},
                           {"other", "other", v.time.other}},
                          0,
                          ""});
  return chart;
}

BarChart wire_chart(const Comparison& comparison) {
  const double most = largest(comparison, [](const Variant& v) { return v.sent(); });
  BarChart chart{"Bytes sent per rank and step by operation", "sent", byte_unit(most), {}};
  for (const Variant& variant : comparison.variants) {
    Bar bar{variant.name, {}, 0, ""};
    for (const std::string& operation : used_operations(comparison))
      bar.segments.push_back({operation, title_of(operation), wire_of(variant, operation).sent});
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

// Returns the chart's main result, in a sentence.
std::string memory_lead(const Comparison& comparison) {
  const auto peak = [](const Variant& a, const Variant& b) { return a.peak() < b.peak(); };
  const auto [least, most] =
      std::minmax_element(comparison.variants.begin(), comparison.variants.end(), peak);
  const std::string figure = byte_text(least->peak());
  if (comparison.variants.size() == 1) return least->name + " takes " + figure + " per rank.";
  if (least->peak() == most->peak()) return "Every variant takes " + figure + " per rank.";
  return "Least: " + least->name + " with " + figure + " per rank, " +
         percent(static_cast<double>(least->peak()), static_cast<double>(most->peak())) + " of " +
         most->name + ".";
}

std::string host_lead(const Comparison& comparison) {
  const auto less = [](const Variant& a, const Variant& b) {
    return a.host_bytes() < b.host_bytes();
  };
  const Variant& most =
      *std::max_element(comparison.variants.begin(), comparison.variants.end(), less);
  const auto whole = static_cast<double>(most.host_bytes());
  return "Most: " + most.name + " with " + byte_text(whole) + " per rank, " +
         percent(static_cast<double>(most.pinned_bytes()), whole) + " of it page-locked.";
}

std::string wire_lead(const Comparison& comparison) {
  const Variant& first = comparison.variants.front();
  std::string text;
  for (const Variant& variant : comparison.variants)
    if (&variant != &first && first.sent() > 0)
      text += (text.empty() ? "Relative to " + first.name + ": " : ", ") + variant.name +
              " \u00d7 " + fixed(variant.sent() / first.sent(), 2);
  const bool crosses = largest(comparison, [](const Variant& v) { return v.between_nodes(); }) > 0;
  return text + (text.empty() ? "" : ". ") +
         (crosses ? "The table shows the bytes between nodes."
                  : "All of it stays inside one node.");
}

std::string time_lead(const Comparison& comparison) {
  const auto slower = [](const Variant& a, const Variant& b) {
    return a.tokens_per_second < b.tokens_per_second;
  };
  const Variant& fastest =
      *std::max_element(comparison.variants.begin(), comparison.variants.end(), slower);
  return (comparison.variants.size() > 1 ? "Fastest here: " : "") + fastest.name + " with " +
         fixed(fastest.tokens_per_second, 0) + " tokens/s. Of its step, " +
         percent(fastest.time.waiting, std::max(fastest.time.total(), 1e-12)) +
         " went into waits on communication.";
}

std::string loss_lead(const Comparison& comparison) {
  if (comparison.variants.size() == 1) return "Of " + comparison.variants.front().name + ".";
  const std::vector<Variant> runs = runs_of(comparison).variants;
  const bool encoded = std::any_of(runs.begin(), runs.end(), [&](const Variant& variant) {
    return sums_otherwise(runs, variant);
  });
  return bits_equal(comparison) && !encoded
             ? "One curve: the variants have the same losses to the last bit."
             : "Variants with the same losses to the last bit share a curve.";
}

// Returns a section: a heading, a lead that explains the content, and the content.
std::string section(const std::string& title, const std::string& lead, const std::string& body) {
  return "<section>\n<h2>" + escape_html(title) + "</h2>\n<p class=\"lead\">" + escape_html(lead) +
         "</p>\n" + body + "</section>\n";
}

// The style sheet marks equal and failed results; a plan and a single run have no mark.
const char* class_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::equal:
      return "verdict equal";
    case Verdict::Kind::differs:
    case Verdict::Kind::incomplete:
      return "verdict fails";
    case Verdict::Kind::plan:
      return "verdict plan";
    default:
      return "verdict";
  }
}

std::string verdict(const Comparison& comparison) {
  const Verdict verdict = verdict_of(comparison);
  std::string text = std::string("<div class=\"") + class_of(verdict.kind) + "\" id=\"verdict\">\n";
  for (const std::string& sentence : verdict.sentences)
    text += "<p>" + escape_html(sentence) + "</p>\n";
  return text + "</div>\n";
}

std::string facts(const Comparison& comparison) {
  if (comparison.facts.empty()) return "";
  std::string text = "<dl class=\"facts\">\n";
  for (const auto& [name, value] : comparison.facts)
    text += "<dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd>\n";
  return text + "</dl>\n";
}

std::string table(const Comparison& comparison) {
  const Table table = table_of(comparison);
  std::string text = "<table>\n<thead><tr><th></th>";
  for (const std::string& column : table.columns)
    text += "<th scope=\"col\">" + escape_html(column) + "</th>";
  text += "</tr></thead>\n<tbody>\n";
  for (const Row& row : table.rows) {
    static constexpr const char* classes[] = {"heading", "part", "whole"};
    text += std::string("<tr class=\"") + classes[static_cast<int>(row.kind)] +
            "\"><th scope=\"row\">" + escape_html(row.label) + "</th>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const std::string cell = row.cells.empty() ? "" : row.cells[i];
      text += std::string("<td") + (cell == "NO" ? " class=\"differs\"" : "") + ">" +
              escape_html(cell) + "</td>";
    }
    text += "</tr>\n";
  }
  return text + "</tbody>\n</table>\n";
}

std::string explanations(const Comparison& comparison) {
  std::string text;
  for (const Note& note : notes_on(comparison))
    text += "<dt>" + escape_html(note.term) + "</dt><dd>" + escape_html(note.meaning) + "</dd>\n";
  if (text.empty()) return "";
  return "<section class=\"text\">\n<h2>How to read this</h2>\n<dl class=\"notes\">\n" + text +
         "</dl>\n</section>\n";
}

std::string remarks(const Comparison& comparison) {
  std::string text;
  for (const std::string& remark : comparison.remarks)
    text += "<p class=\"remark\">" + escape_html(remark) + "</p>\n";
  return text;
}

std::string memory_sections(const Comparison& comparison) {
  if (largest(comparison, [](const Variant& v) { return static_cast<double>(v.peak()); }) == 0)
    return "";
  const BarChart memory = memory_chart(comparison);
  const std::string resident = nothing_ran(comparison) ? "" : "resident (PSS)";
  std::string text = section(
      std::string(on_gpu(comparison) ? "GPU memory per rank, " : "Memory per rank, ") +
          memory.unit.name,
      memory_lead(comparison),
      legend_of(memory, on_gpu(comparison) ? "" : resident) + svg_of(memory) + remarks(comparison));
  if (!on_gpu(comparison)) return text;
  const BarChart host = host_chart(comparison);
  return text + section(std::string("Host memory per rank, ") + host.unit.name,
                        host_lead(comparison), legend_of(host, resident) + svg_of(host));
}

// Sections of runs only; plans have no measurements.
std::string measured_sections(const Comparison& runs) {
  if (runs.variants.empty()) return "";
  const BarChart time = time_chart(runs), wire = wire_chart(runs);
  std::string text;
  if (largest(runs, [](const Variant& v) { return v.time.total(); }) > 0)
    text += section(std::string("Time per step, ") + time.unit.name, time_lead(runs),
                    legend_of(time) + svg_of(time));
  if (!used_operations(runs).empty())
    text += section(std::string("On the wire per rank and step, ") + wire.unit.name,
                    wire_lead(runs), legend_of(wire) + svg_of(wire));
  return text + section("Training loss", loss_lead(runs), loss_svg_of(runs));
}

// The simulated steps of plans.
std::string predicted_section(const Comparison& comparison) {
  const auto seconds = [](const Variant& v) { return v.predicted ? v.predicted->seconds : 0; };
  const double longest = largest(comparison, seconds);
  if (longest == 0) return "";
  BarChart chart{"Predicted time per step, a bar per variant", "step", time_unit(longest), {}};
  const Variant* fastest = nullptr;
  for (const Variant& variant : comparison.variants) {
    if (!variant.predicted) continue;
    const Prediction& step = *variant.predicted;
    chart.bars.push_back({variant.name,
                          {{"compute", "compute", step.seconds - step.exposed},
                           {"waiting", "wait on communication", step.exposed}},
                          0,
                          ""});
    if (step.fits && (fastest == nullptr || step.seconds < fastest->predicted->seconds))
      fastest = &variant;
  }
  const std::string lead = fastest == nullptr
                               ? "None of them fits."
                               : "Fastest of those that fit: " + fastest->name + " with " +
                                     fixed(fastest->predicted->tokens_per_second, 0) +
                                     " tokens/s on each rank.";
  return section(std::string("Predicted time per step, ") + chart.unit.name, lead,
                 legend_of(chart) + svg_of(chart));
}

std::string timeline_section(const Comparison& comparison) {
  if (!comparison.timeline) return "";
  const Timeline& step = *comparison.timeline;
  return section(std::string("Simulated step, ") + time_unit(step.seconds).name,
                 "The work of each stream in a step of " + step.title +
                     "; gaps between computations are waits.",
                 drawing_of(step));
}

std::string all_figures(const Comparison& comparison) {
  const bool compares = runs_of(comparison).variants.size() > 1;
  return section("All figures",
                 compares
                     ? "A column per variant; the first run is the one that bits are held against."
                     : "A column per variant.",
                 "<div class=\"scroll\">\n" + table(comparison) + "</div>\n");
}

std::string sections(const Comparison& comparison) {
  if (comparison.variants.empty()) return "";
  return memory_sections(comparison) + predicted_section(comparison) +
         timeline_section(comparison) + measured_sections(runs_of(comparison)) +
         all_figures(comparison) + explanations(comparison);
}

}  // namespace

std::string html_of(const Comparison& comparison) {
  const std::string title = "ZeRO stages side by side";
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         escape_html(title + ": " + comparison.title) + "</title>\n<style>" + html_style +
         "</style>\n</head>\n<body>\n<header>\n<h1>" + title + "</h1>\n<p class=\"subtitle\">" +
         escape_html(comparison.title) + "</p>\n</header>\n<main>\n" + verdict(comparison) +
         facts(comparison) + sections(comparison) +
         "</main>\n<footer>Written by ZeroCore; report.json holds every "
         "value.</footer>\n</body>\n</html>\n";
}

}  // namespace zero::report
