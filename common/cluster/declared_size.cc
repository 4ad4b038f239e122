#include "common/cluster/declared_size.h"

#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace syncline {
namespace {

constexpr char kKey[] = "syncline-file-bytes";
constexpr size_t kShownMax = 32;

}  // namespace

void DeclareFileBytes(uint64_t bytes, grpc::ClientContext* context) {
  context->AddMetadata(kKey, absl::StrCat(bytes));
}

absl::StatusOr<std::optional<uint64_t>> DeclaredFileBytes(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  const auto [begin, end] = metadata.equal_range(kKey);
  if (begin == end) return std::nullopt;
  const absl::string_view said(begin->second.data(), begin->second.size());
  if (std::next(begin) != end) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", kKey, " is there more than once"));
  }
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(said, &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metadata ", kKey, ": \"", absl::CHexEscape(said.substr(0, kShownMax)),
        "\" is no number of bytes"));
  }
  return bytes;
}

}  // namespace syncline
