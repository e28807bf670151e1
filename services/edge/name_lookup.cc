#include "services/edge/name_lookup.h"

#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// What the thread of a look-up and the coroutine that waits for it share.
struct Search {
  std::mutex mutex;
  std::optional<Result<Endpoints>> found;  // guarded by mutex
  asio::io_context* context = nullptr;     // guarded by mutex; null: nothing waits any more
  asio::steady_timer* signal = nullptr;    // the context's thread alone

  void finish(Result<Endpoints> result, const std::shared_ptr<Search>& self) {
    const std::lock_guard lock(mutex);
    found = std::move(result);
    if (context == nullptr) return;
    asio::post(*context, [self] {
      if (self->signal != nullptr) self->signal->cancel();
    });
  }
};

// The coroutine's side, which ends with the coroutine: its context may end before the look-up.
class Waiter {
 public:
  Waiter(asio::io_context& context, std::shared_ptr<Search> search)
      : signal(context), search_(std::move(search)) {
    search_->context = &context;
    search_->signal = &signal;
  }
  ~Waiter() {
    const std::lock_guard lock(search_->mutex);
    search_->context = nullptr;
    search_->signal = nullptr;
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  std::optional<Result<Endpoints>> found() const {
    const std::lock_guard lock(search_->mutex);
    return search_->found;
  }

  asio::steady_timer signal;

 private:
  const std::shared_ptr<Search> search_;
};

// False: the system has no thread for it.
bool begin(const std::shared_ptr<Search>& search,
           const std::string& host,
           const std::string& port,
           const NameLookup& lookup) {
  try {
    std::thread([search, host, port, lookup] {
      try {
        search->finish(lookup(host, port), search);
      } catch (const std::exception& error) {  // out of memory, for instance
        search->finish(Error{ErrorCode::kUnavailable, error.what()}, search);
      }
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

asio::awaitable<Result<Endpoints>> find_endpoints(asio::io_context& context,
                                                  const std::string& host,
                                                  const std::string& port,
                                                  TimePoint deadline,
                                                  const NameLookup& lookup) {
  boost::system::error_code no_address;
  (void)asio::ip::make_address(host, no_address);
  if (!no_address) co_return look_up(host, port);  // needs no server
  const auto search = std::make_shared<Search>();
  Waiter waiter(context, search);
  if (!begin(search, host, port, lookup))
    co_return Error{ErrorCode::kUnavailable, "no thread for a look-up of the name"};
  while (!waiter.found() && steady_now() < deadline) {
    boost::system::error_code ignored;
    waiter.signal.expires_at(deadline);
    co_await waiter.signal.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  auto found = waiter.found();
  if (found) co_return std::move(*found);
  co_return Error{ErrorCode::kUnavailable, "no address for the name in time"};
}

}  // namespace

Result<Endpoints> look_up(const std::string& host, const std::string& port) {
  asio::io_context context(1);
  tcp::resolver resolver(context);
  boost::system::error_code error;
  const auto places = resolver.resolve(host, port, error);
  if (error) return Error{ErrorCode::kUnavailable, error.message()};
  return Endpoints(places.begin(), places.end());
}

asio::awaitable<Result<Endpoints>> endpoints_of(asio::io_context& context,
                                                const std::string& host,
                                                const std::string& port,
                                                TimePoint deadline,
                                                const NameLookup& lookup) {
  return find_endpoints(context, host, port, deadline, lookup);
}

}  // namespace foretoken::edge
