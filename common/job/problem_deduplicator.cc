#include "common/job/problem_deduplicator.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/edit_distance.h"
#include "google/protobuf/message.h"

namespace syncline {
namespace {

namespace pb = google::protobuf;

// A person mends the first few; each is compared with all reported before, and
// a stranger's job may have a million.
constexpr size_t kKeptMax = 200;
constexpr size_t kLookedAtMax = 1000;

// "every_clocks" and JSON's "everyClocks" are every, clocks.
std::vector<std::string> WordsOf(absl::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const bool begins = c == '_' || absl::ascii_isupper(c);
    if (begins && !words.back().empty()) words.emplace_back();
    if (c != '_') words.back() += absl::ascii_tolower(c);
  }
  return words;
}

// How many words of two names are the same, where that is half of the words of
// the longer name or more; else 0.
int SharedWords(absl::string_view known, absl::string_view name) {
  const std::vector<std::string> of_known = WordsOf(known);
  const std::vector<std::string> of_name = WordsOf(name);
  const auto shared = std::count_if(
      of_known.begin(), of_known.end(), [&](const std::string& word) {
        return std::find(of_name.begin(), of_name.end(), word) != of_name.end();
      });
  const size_t longest = std::max(of_known.size(), of_name.size());
  return 2 * static_cast<size_t>(shared) >= longest ? static_cast<int>(shared)
                                                    : 0;
}

// One part of a path: "feeds[2]" is the name and the index, -1 if there is
// none.
struct Part {
  explicit Part(absl::string_view text) : name(text.substr(0, text.find('['))) {
    const size_t digits = name.size() + 1;
    if (digits >= text.size() ||
        !absl::SimpleAtoi(text.substr(digits, text.size() - digits - 1),
                          &index)) {
      index = -1;
    }
  }
  std::string name;
  int index = -1;
};

bool IsPath(absl::string_view path) {
  const pb::Descriptor* message = JobSpec::descriptor();
  for (const absl::string_view text : absl::StrSplit(path, '.')) {
    const pb::FieldDescriptor* field =
        message == nullptr ? nullptr
                           : message->FindFieldByName(Part(text).name);
    if (field == nullptr) return false;
    message = field->message_type();
  }
  return true;
}

// Something is written there. REQUIRES: IsPath(path).
bool IsSet(const JobSpec& spec, absl::string_view path) {
  const pb::Message* message = &spec;
  for (const absl::string_view text : absl::StrSplit(path, '.')) {
    const Part part(text);
    const pb::Reflection& get = *message->GetReflection();
    const auto* field = message->GetDescriptor()->FindFieldByName(part.name);
    const int index = std::max(part.index, 0);
    if (field->is_repeated() ? index >= get.FieldSize(*message, field)
                             : !get.HasField(*message, field)) {
      return false;
    }
    if (field->message_type() == nullptr) return true;
    message = field->is_repeated()
                  ? &get.GetRepeatedMessage(*message, field, index)
                  : &get.GetMessage(*message, field);
  }
  return true;
}

// `path` is `around` or something in it.
bool IsWithin(absl::string_view path, absl::string_view around) {
  return absl::StartsWith(path, around) &&
         (path.size() == around.size() || around.empty() ||
          path[around.size()] == '.' || path[around.size()] == '[');
}

absl::string_view PathOf(absl::string_view problem) {
  return problem.substr(0, problem.find(':'));
}

// The fields that the text of a problem names: words like "data.test".
std::vector<absl::string_view> MentionedPaths(absl::string_view problem) {
  std::vector<absl::string_view> paths;
  for (absl::string_view word :
       absl::StrSplit(problem.substr(PathOf(problem).size()),
                      absl::ByAnyChar(" ,;:()'\""), absl::SkipEmpty())) {
    if (absl::StrContains(word, '.') && IsPath(word)) paths.push_back(word);
  }
  return paths;
}

}  // namespace

ProblemDeduplicator::ProblemDeduplicator(const JobReading& reading)
    : spec_(reading.spec),
      complete_(reading.complete),
      paths_(reading.unread_paths) {}

std::vector<std::string> ProblemDeduplicator::KeepNew(
    const std::vector<std::string>& problems) {
  std::vector<std::string> news;
  size_t looked_at = 0;
  while (looked_at < problems.size() && looked_at < kLookedAtMax &&
         news.size() < kKeptMax) {
    const std::string& problem = problems[looked_at++];
    if (!IsConsequence(problem)) news.push_back(problem);
  }
  const size_t more = problems.size() - looked_at;
  for (const std::string& problem : news) {
    const absl::string_view path = PathOf(problem);
    if (IsPath(path)) paths_.emplace_back(path);
  }
  if (more > 0) news.push_back(absl::StrCat("and ", more, " more problems"));
  return news;
}

bool ProblemDeduplicator::IsConsequence(absl::string_view problem) const {
  const absl::string_view path = PathOf(problem);
  const std::vector<absl::string_view> mentioned = MentionedPaths(problem);
  if (!complete_) {
    const auto missing = [&](absl::string_view p) { return !IsSet(spec_, p); };
    if (IsPath(path) && missing(path)) return true;
    if (std::any_of(mentioned.begin(), mentioned.end(), missing)) return true;
  }
  return std::any_of(
      paths_.begin(), paths_.end(), [&](const std::string& reported) {
        if (IsPath(path) && IsWithin(reported, path)) return true;
        if (Explains(reported, path)) return true;
        return std::any_of(
            mentioned.begin(), mentioned.end(), [&](absl::string_view other) {
              return Explains(reported, other) ||
                     absl::StartsWith(reported, absl::StrCat(other, "["));
            });
      });
}

bool ProblemDeduplicator::Explains(const std::string& reported,
                                   absl::string_view path) const {
  if (IsWithin(path, reported)) return true;
  if (!IsPath(path) || IsPath(reported)) return false;
  // An unknown field: perhaps the one that is missing.
  const absl::string_view message = ParentPath(reported);
  if (!IsWithin(path, message)) return false;
  absl::string_view below = path.substr(message.size());
  if (absl::StartsWith(below, ".")) below.remove_prefix(1);
  const Part missing(below.substr(0, below.find('.')));
  const std::string whole =
      message.empty() ? missing.name : absl::StrCat(message, ".", missing.name);
  const absl::string_view name = absl::string_view(reported).substr(
      message.empty() ? 0 : message.size() + 1);
  const auto* container = spec_.GetDescriptor();
  for (const absl::string_view part :
       absl::StrSplit(message, '.', absl::SkipEmpty())) {
    container = container->FindFieldByName(Part(part).name)->message_type();
  }
  const auto* resembling = FindResembling(*container, name);
  return resembling != nullptr && resembling->name() == missing.name &&
         !IsSet(spec_, whole);
}

const pb::FieldDescriptor* FindResembling(const pb::Descriptor& message,
                                          absl::string_view name) {
  // Enough for any name there is; hostile ones are not measured.
  constexpr size_t kNameMax = 64;
  const pb::FieldDescriptor* best = nullptr;
  size_t best_distance = kNameMax;
  for (int i = 0; i < message.field_count() && name.size() <= kNameMax; ++i) {
    const std::string& known = message.field(i)->name();
    const bool begins = name.size() >= 3 && (absl::StartsWith(known, name) ||
                                             absl::StartsWith(name, known));
    const size_t distance = begins ? 1 : EditDistance(name, known);
    if (distance > 1 + known.size() / 4 || distance >= best_distance) continue;
    best = message.field(i);
    best_distance = distance;
  }
  if (best != nullptr || name.size() > kNameMax) return best;
  // Another word for the same: every_steps for every_clocks.
  int most_shared = 0;
  for (int i = 0; i < message.field_count(); ++i) {
    const std::string& known = message.field(i)->name();
    const int shared = SharedWords(known, name);
    const size_t distance = EditDistance(name, known);
    if (shared == 0 || shared < most_shared ||
        (shared == most_shared && distance >= best_distance)) {
      continue;
    }
    best = message.field(i);
    best_distance = distance;
    most_shared = shared;
  }
  return best;
}

std::string WithAcceptedValues(absl::string_view message,
                               const pb::FieldDescriptor* field) {
  if (field == nullptr || field->enum_type() == nullptr) {
    return std::string(message);
  }
  std::vector<std::string> names;
  for (int i = 0; i < field->enum_type()->value_count(); ++i) {
    const std::string& name = field->enum_type()->value(i)->name();
    if (!absl::EndsWith(name, "_UNSPECIFIED")) names.push_back(name);
  }
  return absl::StrCat(absl::StripSuffix(message, "."), "; it is one of ",
                      absl::StrJoin(names, ", "));
}

}  // namespace syncline
