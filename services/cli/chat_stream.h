// OpenAI's streamed chat completion as its client reads it: a request to the router -> the body,
// and events -> the words of the client door. It knows no socket.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::cli {

// Of a request with messages.
Json chat_body(const wire::ClientRequest& request);

class ChatStream {
 public:
  // More bytes of the event stream.
  std::vector<wire::ClientAnswer> read(std::string_view bytes);
  // Its last answer was read.
  bool is_over() const { return is_over_; }

 private:
  void read_event(std::string_view data, std::vector<wire::ClientAnswer>& answers);
  void finish(std::vector<wire::ClientAnswer>& answers);

  std::string line_;  // its beginning
  wire::ClientReply reply_;
  std::uint32_t n_pieces_ = 0;
  bool is_over_ = false;
};

// What a body with "error" says, or the body.
std::string error_message(std::string_view body);

// What a reply that is no stream means: kDeadlineExceeded if the time was up, else kInternal.
Error http_failure(unsigned status, std::string_view body);

}  // namespace foretoken::cli
