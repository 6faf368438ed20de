package serviceproxy

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// timeToLive is short: a pod learns only by this that a Service was made again.
const timeToLive = 5 * time.Second

// answer replies to one DNS query. A name that lookup knows has an A record and no other; an unknown one does not exist. Anything but a
// query gets no reply.
func answer(query []byte, lookup func(name string) (netip.Addr, bool)) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, fmt.Errorf("reading a DNS query: %w", err)
	}
	question, err := parser.Question()
	if err != nil || header.Response {
		return nil, fmt.Errorf("reading a DNS query: not one question: %w", err)
	}
	address, found := lookup(question.Name.String())
	reply := dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, Authoritative: true,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}
	switch {
	case header.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	case !found:
		reply.RCode = dnsmessage.RCodeNameError
	}
	builder := dnsmessage.NewBuilder(nil, reply)
	builder.EnableCompression()
	if err := builder.StartQuestions(); err != nil {
		return nil, err
	}
	if err := builder.Question(question); err != nil {
		return nil, err
	}
	if err := builder.StartAnswers(); err != nil {
		return nil, err
	}
	if reply.RCode == dnsmessage.RCodeSuccess && question.Type == dnsmessage.TypeA && address.Is4() {
		err := builder.AResource(dnsmessage.ResourceHeader{
			Name: question.Name, Class: dnsmessage.ClassINET, TTL: uint32(timeToLive / time.Second),
		}, dnsmessage.AResource{A: address.As4()})
		if err != nil {
			return nil, err
		}
	}
	return builder.Finish()
}
