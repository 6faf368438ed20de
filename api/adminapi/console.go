package adminapi

// PathConsoleCode accepts a POST with a bearer token and returns a code that logs a browser in to the console, once, within a minute. The code
// belongs in the fragment of the login page's URL, which browsers never send over the network.
const PathConsoleCode = "/ui/code"

// ConsoleCode is the response of PathConsoleCode.
type ConsoleCode struct {
	Code string `json:"code"`
}
