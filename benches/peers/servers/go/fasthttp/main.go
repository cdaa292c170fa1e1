// The fasthttp peer, on two threads. Nothing is marked: a goroutine that waits holds no thread.
package main

import (
	"encoding/json"
	"log"
	"runtime"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"peers/common"
)

func length(ctx *fasthttp.RequestCtx) time.Duration {
	query := ctx.QueryArgs()
	return common.Length(string(query.Peek("us")), string(query.Peek("ms")))
}

func answer(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("text/plain")
	switch string(ctx.Path()) {
	case "/plaintext":
		ctx.SetBodyString(common.Hello)
	case "/json":
		content, err := json.Marshal(common.Message{Message: common.Hello})
		if err != nil {
			ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
			return
		}
		ctx.SetContentType("application/json")
		ctx.SetBody(content)
	case "/sleep":
		time.Sleep(length(ctx))
		ctx.SetBodyString(common.Hello)
	case "/cpu":
		runtime.KeepAlive(common.Spin(length(ctx)))
		ctx.SetBodyString(common.Hello)
	case "/miss":
		query := ctx.QueryArgs()
		ctx.SetBodyString(common.Miss(string(query.Peek("one_in")), string(query.Peek("us"))))
	case "/length":
		ctx.SetBodyString(strconv.Itoa(len(ctx.PostBody())))
	default:
		ctx.SetStatusCode(fasthttp.StatusNotFound)
	}
}

func main() {
	server := &fasthttp.Server{Handler: answer}
	log.Fatal(server.ListenAndServe(common.Address()))
}
